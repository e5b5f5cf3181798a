"""Upcasters: functions that make plain JSON of an old version into JSON of the next one, when it is read.

What is stored is never rewritten. An upcaster belongs to a class, whose version it leads to; or it leads from a name
that only the store has to the classes that took its place.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from stepwell.base.names import check_name, check_whole
from stepwell.errors import InvalidOption, SerializationError, UnknownRecord, UpcastFailed
from stepwell.values.codec import decode, encode
from stepwell.values.versions import NEWEST, VERSION, class_at, name_of, version_of

F = TypeVar("F", bound=Callable[[Any], Any])
Node = tuple[str, int]  # a stored name and its version
STATE: Final = "state"  # derived from events: thrown away if its code has changed, and never upcast


@dataclass(frozen=True, slots=True)
class Upcaster:
    """One upcaster; `into` are the classes that it leads to, at version 1, None for the next version of its name."""

    name: str
    version: int
    into: tuple[type, ...] | None
    splits: bool  # it answers a list of pairs, a class and its JSON
    decider: str | None
    fn: Callable[[Any], Any]

    def apply(self, data: Any, what: str) -> Sequence[tuple[type | None, Any]]:
        """What the upcaster makes of the data: each with its class, None for the next version of the same name."""
        try:
            made = self.fn(data)
        except Exception as error:
            why = f"it raised {type(error).__name__}: {error}"
            raise UpcastFailed(what, self.name, self.version, why) from error
        if self.into is None:
            return [(None, made)]
        if not self.splits:
            return [(self.into[0], made)]
        pairs = made if isinstance(made, list | tuple) else [made]
        if strange := [one for one in pairs if not self._is_part(one)]:
            why = f"it answers a list of pairs, a class of ({self.led_to}) and its JSON, not {strange[0]!r:.80}"
            raise UpcastFailed(what, self.name, self.version, why)
        return pairs

    @property
    def led_to(self) -> str:
        """The names of its classes."""
        return "next" if self.into is None else ", ".join(name_of(cls) for cls in self.into)

    def _is_part(self, one: object) -> bool:
        return isinstance(one, tuple) and len(one) == 2 and one[0] in (self.into or ())

    @property
    def place(self) -> str:
        """Where the function is written: most of them are called `_`."""
        code = getattr(self.fn, "__code__", None)
        return f"{self.fn.__module__}:{code.co_firstlineno if code else self.fn!r}"


def upcast(
    of: type | str, version: int, /, *, to: type | tuple[type, ...] | None = None, decider: str | None = None
) -> Callable[[F], F]:
    """Make the function an upcaster: it is given a stored value of this version as plain JSON, and returns the next.

    `@upcast(OrderPlaced, 1)` leads to version 2 of the class. `@upcast("OrderCreated", 1, to=OrderPlaced)` renames:
    what was stored under that name is read as version 1 of the class. `to=(Paid, Shipped)` splits an event, and the
    function returns a list of pairs, `[(Paid, {...}), (Shipped, {...})]`. An upcaster that leads to no class says which
    decider has stored the name: `to=(), decider="order"` drops what is stored under it, and
    `@upcast("OrderCreated", 1, decider="order")` leads to its version 2.
    """
    name = check_name("class", of) if isinstance(of, str) else name_of(of)
    check_whole("version", version, 1, NEWEST)
    into = to if to is None or isinstance(to, tuple) else (to,)
    if into is not None and not all(isinstance(one, type) for one in into):
        raise InvalidOption("to", to, "it is a class, a tuple of classes, or () to drop what is stored")
    if (into == () or (into is None and isinstance(of, str))) != (decider is not None):
        why = "an upcaster that leads to no class says whose name it is, `decider=...`, and any other does not"
        raise InvalidOption("decider", decider, why)

    def decorate(fn: F) -> F:
        link = Upcaster(name, version, into, isinstance(to, tuple), decider, fn)
        if into is None and not isinstance(of, str):
            _add(_own.setdefault(of, []), link)
        elif not into:
            _add(_named.setdefault(name, []), link)
        for target in into or ():
            _add(_into.setdefault(target, []), link)
        return fn

    return decorate


_own: Final[weakref.WeakKeyDictionary[type, list[Upcaster]]] = weakref.WeakKeyDictionary()
_into: Final[weakref.WeakKeyDictionary[type, list[Upcaster]]] = weakref.WeakKeyDictionary()
_named: Final[dict[str, list[Upcaster]]] = {}


def _add(links: list[Upcaster], link: Upcaster) -> None:
    """Keep the link; a module that is loaded again replaces its own."""
    links[:] = [one for one in links if one.place != link.place or one.version != link.version]
    links.append(link)


def versions_at(types: Iterable[Any]) -> tuple[str, ...]:
    """What a worker registers of the classes at these places: the versions that it reads, if they are not 1.

    Refuses a class whose upcasters do not lead from version 1 to its own.
    """
    found: dict[str, None] = {}
    for type_ in types:
        if (cls := class_at(type_)) is not None:
            for name, newest in Routes("value", "", {name_of(cls): cls}, own=True).newest.items():
                found |= {f"/{name}@{newest}": None} if newest > 1 else {}
    return tuple(found)


def upcasted(type_: Any, version: int, data: Any, what: str) -> Any:
    """A value of the type, from plain JSON of an older version of its class; `UnknownRecord` if that is newer."""
    cls = class_at(type_)
    assert cls is not None
    name, known = name_of(cls), version_of(cls)
    if version > known:
        raise UnknownRecord(what, name, version, f"this code has version {known}")
    links = {link.version: link for link in _own.get(cls, ())}
    for number in range(version, known):
        if (link := links.get(number)) is None:
            raise UnknownRecord(what, name, version, f"an upcaster of {name} {number} is missing here")
        [(_, data)] = link.apply(data, what)
    return made_of(data, type_, what, (name, version))


def made_of(data: Any, type_: Any, what: str, source: Node) -> Any:
    """What upcasters returned, as a value of its type; `source` is the name and version that they began with."""
    try:
        return decode(encode(data, limit=sys.maxsize), type_)
    except SerializationError as error:
        cls = class_at(type_) or object
        why = f"what it returned does not fit {cls.__name__}, version {version_of(cls)}, at `{error.path}`"
        raise UpcastFailed(what, *source, f"{why}: {error.source}") from error


class Routes:
    """The ways from every stored name and version to the classes of one part of a decider, checked when it is made."""

    def __init__(self, part: str, of: str, classes: Mapping[str, type], *, own: bool = False) -> None:
        self._part = part
        self._of = of
        self._classes = classes
        self._links: dict[Node, Upcaster] = {}
        if part == STATE:
            return
        for link in self._found(own=own):
            if (first := self._links.setdefault((link.name, link.version), link)) is not link:
                self._refuse(link, f"{first.place} is an upcaster of it too; remove one of them")
        self._check()

    @property
    def links(self) -> Sequence[Upcaster]:
        """The upcasters, in the order of the names and versions that they read."""
        return [self._links[node] for node in sorted(self._links)]

    @property
    def newest(self) -> Mapping[str, int]:
        """Every stored name that can be read, and the newest version of it."""
        found = {name: version_of(cls) for name, cls in self._classes.items()}
        for name, version in self._links:
            found[name] = max(found.get(name, 0), version)
        return found

    @property
    def is_used(self) -> bool:
        """True if a version is not 1, or there is an upcaster."""
        return bool(self._links)

    def names_of(self, cls: type) -> tuple[str, ...]:
        """The stored names that lead to the class, its own first."""
        found = [name_of(cls)]
        for link in self.links:
            if link.into is not None and cls in link.into and link.name not in found:
                found.append(link.name)
        return tuple(found)

    def follow(self, node: Node, data: Any, what: str) -> Iterator[tuple[type, Any]]:
        """The classes that the data is read as, each with its JSON: none if it was dropped, several if it was split."""
        cls, link = self._classes.get(node[0]), self._links.get(node)
        if link is not None:
            for into, made in link.apply(data, what):
                yield from self.follow((node[0], node[1] + 1) if into is None else (name_of(into), 1), made, what)
        elif cls is not None and node[1] == version_of(cls):
            yield cls, data
        else:
            newest = self.newest.get(node[0])
            declared = ", ".join(self._classes) or "none"
            known = f"{self._of} declares {declared}" if newest is None else f"this code has version {newest}"
            raise UnknownRecord(what, *node, known)

    def _found(self, *, own: bool) -> Iterator[Upcaster]:
        seen: set[int] = set()
        names: set[str] = set(self._classes)
        for cls in self._classes.values():
            for link in (*_own.get(cls, ()), *(() if own else _into.get(cls, ()))):
                if id(link) not in seen:
                    seen.add(id(link))
                    names.add(link.name)
                    yield link
        if own:
            return
        named = [link for links in tuple(_named.values()) for link in links if link.decider == self._of]
        dropped = [link for link in named if link.into == () and not self._is_declared(link)]
        gone = (names | {link.name for link in dropped}) - self._classes.keys()
        yield from dropped
        yield from (link for link in named if link.into is None and link.name in gone)

    def _is_declared(self, link: Upcaster) -> bool:
        """True if the name that is dropped is that of a class of this part: another part has dropped it."""
        cls = self._classes.get(link.name)
        return cls is not None and version_of(cls) <= link.version

    def _check(self) -> None:
        for (name, version), link in self._links.items():
            cls = self._classes.get(name)
            if cls is not None and version >= version_of(cls):
                self._refuse(link, f"it leads past the class, which is at version {version_of(cls)}")
            if cls is None and link.into is None and (name, version + 1) not in self._links:
                self._refuse(link, f"it leads nowhere: {name} has no class here, and no upcaster of {version + 1}")
            if strange := [one for one in link.into or () if self._classes.get(name_of(one)) is not one]:
                self._refuse(link, f"it leads nowhere: {self._of} declares no {self._part} {strange[0].__name__}")
            if link.splits and link.into and self._part != "event":
                self._refuse(link, f"only an event can be split, and this is an {self._part}: answer one of them")
            self._follow_back(link, (name, version), ())
        for name, newest in self.newest.items():
            for version in range(1, newest):
                if (name, version) not in self._links:
                    why = f"an upcaster of {name} {version} is missing: `@upcast({name}, {version})`"
                    raise InvalidOption(f"{VERSION} of {name}", newest, why)

    def _follow_back(self, begun: Upcaster, node: Node, path: tuple[Node, ...]) -> None:
        if node in path:
            ways = " to ".join(f"{name} {version}" for name, version in (*path, node))
            self._refuse(begun, f"it leads in a circle: {ways}")
        if (link := self._links.get(node)) is None:
            return
        for into in (None,) if link.into is None else link.into:
            self._follow_back(begun, (node[0], node[1] + 1) if into is None else (name_of(into), 1), (*path, node))

    def _refuse(self, link: Upcaster, why: str) -> None:
        raise InvalidOption(f"upcaster of {link.name} {link.version}", link.place, why)
