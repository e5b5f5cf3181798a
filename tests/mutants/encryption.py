"""The rules of encryption."""

from tests.mutants.mutant import Mutant

TEST = "tests/store/test_encryption.py::"
MARKER = TEST + "test_a_marker_in_every_value_and_error_is_found_in_no_table_no_log_and_no_metric"
COPIED = TEST + "test_an_envelope_that_was_copied_to_another_row_part_or_tenant_does_not_open"

ENCRYPTION_MUTANTS = (
    Mutant(
        "an envelope opens in another row",
        "security-13",
        "values/cipher.py",
        "or (row and rows and row not in rows)",
        "",
        COPIED,
    ),
    Mutant(
        "an envelope opens in another part",
        "security-13",
        "values/cipher.py",
        " or part not in parts",
        "",
        COPIED,
    ),
    Mutant(
        "the last error tells its message",
        "security-12",
        "store/sealed_driver.py",
        'cells[place] = line_of(str(text), said.get("error"))',
        "pass",
        MARKER,
    ),
    Mutant(
        "the log tells an error's message",
        "security-12",
        "connect.py",
        "config.telemetry.tells = class_in",
        "pass",
        MARKER,
    ),
    Mutant(
        "a signal is stored in the clear",
        "security-12",
        "store/sealed_driver.py",
        '"add_signal": ("data", "headers"), ',
        "",
        MARKER,
    ),
    Mutant(
        "the audit tells its details",
        "security-12",
        "store/sealed_driver.py",
        '"detail": 7, ',
        "",
        MARKER,
    ),
    Mutant(
        "the hash of a payload is stored in the clear",
        "security-12",
        "store/sealed_driver.py",
        '"payload_hash": 8,',
        "",
        TEST + "test_the_same_payload_under_a_key_is_known_again_and_another_is_refused",
    ),
    Mutant(
        "the hash of an input tells whether a guess is right",
        "security-12",
        "deciders/registry.py",
        "payload_hash(text, self.secret)",
        "payload_hash(text)",
        TEST + "test_the_hash_of_an_input_is_keyed_and_stays_what_it_is_when_keys_are_rotated",
    ),
    Mutant(
        "two tenants have the same hashes",
        "security-12",
        "values/cipher.py",
        "blake2b(self._tenant, key=data_key",
        "blake2b(b'', key=b'stepwell'",
        TEST + "test_the_hash_of_an_input_is_keyed_and_stays_what_it_is_when_keys_are_rotated",
    ),
    Mutant(
        "a fork has the envelopes of the other run",
        "security-13",
        "store/sealed_driver.py",
        'call.statement == "copy_steps"',
        "False",
        TEST + "test_a_fork_has_its_own_envelopes",
    ),
    Mutant(
        "two rotations both say that they did it",
        "security-14",
        "store/sql/encryption.sql",
        "where id = :id and wrapped = :previous",
        "where id = :id and :previous = :previous",
        TEST + "test_keys_are_rotated_while_others_work_and_a_rotation_may_be_killed",
    ),
)
