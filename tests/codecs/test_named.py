"""What stands in a value beside its bytes, without any store."""

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest
from pydantic import BaseModel

from stepwell import Config, InvalidOption, MessagePack, PayloadTooLarge, Protobuf, SerializationError, upcast
from stepwell.values.named_codecs import Compressed, codec_of, json_text, shown_value
from stepwell.values.stamp import read_value, write_value, write_values
from stepwell.values.versions import stamped_like
from tests.codecs.shop import Coins


class Model(BaseModel):
    name: str
    photo: bytes


@dataclass(frozen=True)
class Price:
    __stepwell_version__: ClassVar[int] = 2
    cents: int


@upcast(Price, 1)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": old["euros"] * 100}


@pytest.mark.proves("CO-01")
def test_plain_json_is_no_codec_at_work() -> None:
    assert codec_of(None) is None
    assert codec_of("json") is None
    assert Config("memory:?codec=msgpack").options.codec is MessagePack
    assert Config("memory:").options.codec is None
    for wrong in (3, MessagePack.encode, type(MessagePack)):
        with pytest.raises(InvalidOption, match="a codec has a `name`"):
            codec_of(wrong)


@pytest.mark.proves("CO-05")
def test_a_version_stands_beside_the_codec_and_is_upcast() -> None:
    text = write_value(Price(5), codec=MessagePack)
    assert msgspec.json.decode(text)["$sw"] == {"c": "msgpack", "v": 2}
    assert read_value(text, Price) == Price(5)
    old = write_value({"euros": 3}, codec=MessagePack)
    assert read_value(old, Price) == Price(300)
    assert read_value(stamped_like(write_value({"cents": 7}, codec=MessagePack), text), Price) == Price(7)


@pytest.mark.proves("CO-05")
def test_an_object_of_the_user_that_looks_like_a_value_of_a_codec_is_none() -> None:
    mine = {"$sw": {"c": "msgpack"}, "d": "gA=="}
    for codec in (None, MessagePack):
        text = write_value(mine, codec=codec)
        assert read_value(text) == mine
        assert shown_value(text) == mine


@pytest.mark.proves("CO-02")
def test_models_and_many_values_go_through_messagepack() -> None:
    model = Model(name="a", photo=b"x")
    assert read_value(write_value(model, codec=MessagePack), Model) == model
    texts = write_values([model, None, 1], codec=MessagePack)
    assert texts[1] == "null"
    assert [shown_value(text) for text in texts] == [{"name": "a", "photo": "x"}, None, 1]
    assert json_text(texts[2]) == "1"


@pytest.mark.proves("CO-02", "CO-04")
@pytest.mark.parametrize("text", ['{"$sw":{"c":"msgpack"},"d":"wQ=="}', '{"$sw":{"c":"msgpack"},"d":7}'])
def test_bytes_that_are_no_value_are_an_error_with_its_reason(text: str) -> None:
    with pytest.raises(SerializationError):
        read_value(text, int)
    assert shown_value(text) == msgspec.json.decode(text)


@pytest.mark.proves("CO-01")
def test_what_is_compressed_never_becomes_more_than_was_written() -> None:
    bomb = msgspec.json.encode({"$sw": {"c": "json", "z": 12}, "d": zlib.compress(b'"' + b"x" * 1_000_000 + b'"')})
    with pytest.raises(SerializationError):
        read_value(bomb, str)
    codec = Compressed(MessagePack, over=10)
    text = write_value(b"x" * 1000, codec=codec)
    assert len(text) < 200
    assert read_value(text) == b"x" * 1000
    with pytest.raises(PayloadTooLarge):
        write_value(b"x" * 1000, codec=codec, limit=500)


@pytest.mark.proves("CO-03")
def test_a_message_is_read_as_its_class_and_nothing_else() -> None:
    text = write_value(Coins(7), codec=MessagePack)
    assert read_value(text, Coins | None) == Coins(7)
    assert read_value(text) == b"\x08\x07"
    assert write_values([1, Coins(7)]) == ["1", text]
    with pytest.raises(SerializationError, match="is no class of messages"):
        read_value(text, dict[str, int])
    assert Protobuf.encode(7) is None
