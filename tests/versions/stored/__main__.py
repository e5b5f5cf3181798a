"""Write the texts of the newest schema."""

from tests.versions.stored import main

main()
