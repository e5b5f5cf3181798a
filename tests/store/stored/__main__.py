"""Write the texts of the newest schema."""

from tests.store.stored import main

main()
