"""The rules of codecs."""

from tests.mutants.mutant import Mutant

CODECS = "tests/codecs/test_codecs.py::"
RUN = CODECS + "test_everything_a_run_stores_is_written_by_the_codec_and_read_by_any_program"
UNKNOWN = CODECS + "test_what_an_unknown_codec_has_written_is_left_to_other_code"
BYTES = CODECS + "test_a_message_without_a_type_comes_back_as_it_was"
BARE = CODECS + "test_without_a_codec_a_row_is_plain_json"
LARGE = CODECS + "test_what_is_large_is_compressed_if_that_is_asked_for"
MESSAGE = CODECS + "test_a_message_of_protobuf_is_stored_whatever_the_codec_is"
SHOWN = CODECS + "test_people_see_values_of_every_codec_as_plain_json"

CODEC_MUTANTS = (
    Mutant(
        "a value of a type of the user's own is stored though it reads back as another",
        "types-02",
        "values/own_types.py",
        "for name in vars(cls)} and back != value:",
        "for name in vars(cls)} and back is None:",
        "tests/codecs/test_own_types.py::test_what_would_not_come_back_as_it_was_is_refused_before_it_is_written",
    ),
    Mutant(
        "a value of a type of the user's own may stand where no type is named",
        "types-02",
        "values/lossless.py",
        "    if KNOWN and type_of(type(value)) is not None:",
        "    if KNOWN and type_of(type(value)) is value:",
        "tests/codecs/test_own_types.py::test_what_would_not_come_back_as_it_was_is_refused_before_it_is_written",
    ),
    Mutant(
        "codecs: the arguments of a run stay plain JSON",
        "CO-01",
        "store/draft.py",
        "if asked.defines and asked.again is not None and",
        "if not asked.defines and asked.again is not None and",
        RUN,
    ),
    Mutant(
        "codecs: an unknown codec is an error of the sender",
        "CO-05",
        "values/named_codecs.py",
        'raise UnknownCodec(what, stamp.c, ", ".join(_codecs))',
        'raise SerializationError("it was written by the codec msgpack", what=what)',
        UNKNOWN,
    ),
    Mutant(
        "codecs: bytes are refused where no type is named, whatever the codec keeps",
        "CO-02",
        "values/lossless.py",
        "if codec is not None and _is_kept(value, codec):",
        "if codec is None and _is_kept(value, MessagePack):",
        BYTES,
    ),
    Mutant(
        "codecs: MessagePack refuses what only JSON holds",
        "CO-02",
        "values/named_codecs.py",
        "        except (OverflowError, TypeError, ValueError):\n            return None\n",
        "        except TypeError:\n            return None\n",
        BYTES,
    ),
    Mutant(
        "codecs: plain JSON gets an envelope",
        "CO-01",
        "values/named_codecs.py",
        "return None if said == JSON else said",
        "return MessagePack if said is None or said == JSON else said",
        "tests/codecs/test_named.py::test_plain_json_is_no_codec_at_work",
    ),
    Mutant(
        "codecs: everything is compressed",
        "CO-01",
        "values/named_codecs.py",
        "if over is not None and len(data) > over and",
        "if over is not None and",
        LARGE,
    ),
    Mutant(
        "codecs: a message of Protobuf among other arguments is refused",
        "CO-03",
        "values/arguments.py",
        "        if not any(map(is_message, given.values())):\n            raise\n",
        "        raise\n",
        MESSAGE,
    ),
    Mutant(
        "codecs: a second codec takes the name of the first",
        "CO-04",
        "values/named_codecs.py",
        "if type(known := _codecs.setdefault(name, codec)) is not type(codec):",
        "if (known := _codecs.setdefault(name, codec)) is None:",
        CODECS + "test_a_codec_of_the_user_writes_what_it_takes",
    ),
    Mutant(
        "codecs: what has been compressed may become as large as it likes",
        "CO-01",
        "values/named_codecs.py",
        "decompress(raw, stamp.z)",
        "decompress(raw)",
        "tests/codecs/test_named.py::test_what_is_compressed_never_becomes_more_than_was_written",
    ),
    Mutant(
        "codecs: a version is lost beside a codec",
        "CO-05",
        "values/named_codecs.py",
        '{"c": name} if version == 1 else {"c": name, "v": version}',
        '{"c": name}',
        "tests/codecs/test_named.py::test_a_version_stands_beside_the_codec_and_is_upcast",
    ),
    Mutant(
        "codecs: several arguments are shown as they are stored",
        "CO-05",
        "values/named_codecs.py",
        "for name, one in value.items()} if shown is value else shown",
        "for name, one in value.items()} if shown is None else shown",
        SHOWN,
    ),
    Mutant(
        "codecs: the events of a decider stay plain JSON",
        "CO-01",
        "deciders/type_names.py",
        "text = write_plain(value, self._codec, limit=limit, what=what)",
        "text = write_plain(value, None, limit=limit, what=what)",
        CODECS + "test_deciders_write_their_events_effects_and_inputs_by_the_codec",
    ),
)
