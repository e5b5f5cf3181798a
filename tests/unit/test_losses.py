"""What a model would lose without a word is refused where its type is declared."""

import dataclasses
from typing import Annotated, Any

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from pydantic import AliasChoices, AliasGenerator, AliasPath, BaseModel, ConfigDict, Field, SecretBytes, SecretStr
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from stepwell import SerializationError, handler, step, workflow
from stepwell.values.codec import check_type, decode, encode


class Login(BaseModel):
    password: SecretStr


class Keys(BaseModel):
    held: dict[str, list[SecretBytes | None]]


class Pin(BaseModel):
    digits: pydantic.Secret[int]


class Typed(TypedDict):
    password: SecretStr


@dataclasses.dataclass
class Plain:
    password: SecretStr | None = None


class Inside(BaseModel):
    typed: Typed


class Around(BaseModel):
    plain: Plain


@dataclasses.dataclass
class Holder:
    logins: list[Login]


class Struct(msgspec.Struct):
    login: Login | None


class Cached(BaseModel):
    seen: bool = Field(default=False, exclude=True)


class Written(BaseModel):
    order_id: int = Field(serialization_alias="orderId")


class Read(BaseModel):
    order_id: int = Field(validation_alias="orderId")


class Chosen(BaseModel):
    order_id: int = Field(validation_alias=AliasChoices("orderId", AliasPath("order", "id")))


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))
    order_id: int


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    order_id: int = Field(serialization_alias="orderId")


class Partly(BaseModel):
    names: list[str]
    first: str = Field(validation_alias=AliasChoices(AliasPath("names", 0), "first"))


@pydantic.dataclasses.dataclass
class Parcel:
    weight: int = Field(serialization_alias="grams")


class Sent(BaseModel):
    parcel: Parcel


class Blob(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    data: bytes


REFUSED: list[tuple[Any, str]] = [
    (Login, "Login.password is a SecretStr.*asterisks.*serializer"),
    (Keys, "Keys.held is a SecretBytes"),
    (Pin, "Pin.digits is a Secret"),
    (Inside, "Typed.password is a SecretStr"),
    (Around, "Plain.password is a SecretStr"),
    (Holder, "Login.password"),
    (Struct, "Login.password"),
    (Login | None, "Login.password"),
    (Annotated[dict[str, Login], "note"], "Login.password"),
    (pydantic.RootModel[list[Login]], "Login.password"),
    (Cached, "Cached.seen has `exclude=True`.*private attribute"),
    (Written, "Written.order_id is written as 'orderId' and read as 'order_id'.*alias"),
    (Read, "Read.order_id is written as 'order_id' and read as 'orderId'"),
    (Chosen, "Chosen.order_id is written as 'order_id' and read as 'orderId', 'order'"),
    (Generated, "Generated.order_id is written as 'orderId'"),
    (Named, "Named.order_id is written as 'orderId' and read as 'order_id'"),
    (Partly, "Partly.first is written as 'first' and read as 'names', 'first'"),
    (Sent, "Parcel.weight is written as 'grams'"),
    (Blob, "Blob.data is written as base64 and read as utf8.*val_json_bytes"),
]


@pytest.mark.proves("CO-06")
@pytest.mark.parametrize(("type_", "why"), REFUSED, ids=lambda one: getattr(one, "__name__", None))
def test_a_model_that_would_lose_something_is_refused_with_its_field(type_: Any, why: str) -> None:
    with pytest.raises(SerializationError, match=why) as caught:
        check_type(type_, what="payload of send")
    assert str(caught.value).startswith("payload of send refused")


def _shown(secret: SecretStr) -> str:
    return secret.get_secret_value()


Open = Annotated[SecretStr, pydantic.PlainSerializer(_shown)]


class Own(BaseModel):
    one: Open
    many: list[Open]
    other: SecretStr

    @pydantic.field_serializer("other")
    def show(self, other: SecretStr) -> str:
        return other.get_secret_value()


class Whole(BaseModel):
    seen: bool = Field(exclude=True)

    @pydantic.model_serializer
    def show(self) -> dict[str, bool]:
        return {"seen": self.seen}


class Dumped(BaseModel):
    password: SecretStr

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {"password": self.password.get_secret_value()}


class Translated(BaseModel):
    order_id: int = Field(serialization_alias="orderId")

    @pydantic.model_validator(mode="before")
    @classmethod
    def read(cls, given: dict[str, int]) -> dict[str, int]:
        return {"order_id": given.get("orderId", given.get("order_id", 0))}


class ByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    order_id: int = Field(validation_alias="orderId")


class Choosing(BaseModel):
    order_id: int = Field(validation_alias=AliasChoices("orderId", "order_id"))


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    order_id: int


class Node(BaseModel):
    children: list["Node"] = []
    data: bytes = b""
    _seen: bool = pydantic.PrivateAttr(default=False)


class Bytes(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


KEPT: list[Any] = [
    Own(one=SecretStr("a"), many=[SecretStr("b")], other=SecretStr("c")),
    Whole(seen=True),
    Dumped(password=SecretStr("a")),
    Translated(order_id=7),
    ByName(order_id=7),
    Choosing.model_validate({"orderId": 7}),
    Camel.model_validate({"orderId": 7}),
    Node(children=[Node(data=b"x")]),
    Bytes(data=b"\xff"),
    Plain(),
    Parcel(weight=5),
]


@pytest.mark.proves("CO-06")
@pytest.mark.parametrize("value", KEPT, ids=lambda one: type(one).__name__)
def test_a_model_that_loses_nothing_is_taken(value: Any) -> None:
    for type_ in (type(value), list[type(value)]):  # type: ignore[misc]
        check_type(type_)
    assert decode(encode(value), type(value)) == value


@pytest.mark.proves("CO-06", "T-04")
def test_every_declaration_is_asked() -> None:
    async def takes(login: Login) -> None: ...

    async def gives() -> list[Login]:
        return []

    for declare in (workflow, step, handler("logins"), step(queue="logins")):
        with pytest.raises(SerializationError, match=r"(login|payload) of takes refused.*Login\.password"):
            declare(takes)
    for declare in (workflow, step):
        with pytest.raises(SerializationError, match=r"return of gives refused.*Login\.password"):
            declare(gives)
