"""The mutants fit the code: `make mutants` takes minutes, so what would make it useless is noticed here."""

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.shape.sources import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_what_is_there_and_names_a_test_that_exists(mutant: Mutant) -> None:
    assert mutant.rule in (ROOT / "src" / "stepwell" / mutant.file).read_text()
    assert mutant.rule != mutant.broken
    file, _, test = mutant.test.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text()
