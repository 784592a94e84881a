"""The Python package as Markdown, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .commands import row, wrapped
from .docstrings import Docstring, parsed

# Modules in the order of the page. `_explain` has a class that users meet and do not make.
_CELL = ("pithead.cell", "pithead.cell.pp", "pithead.cell.tl", "pithead.cell.get", "pithead.cell.pl")
_MODULES = ("pithead", "pithead.examples", "pithead.ssd", *_CELL)
_ALSO = {"pithead": ["_explain.Node"], "pithead.cell.pp": ["PcaResult"]}
_HEAD = """# Python package

Every public name of `pithead`, `pithead.ssd` and `pithead.cell`, with its parameters. [Python](../guides/python.md),
[programs](../guides/programs.md#on-drives-on-the-network) and [cells](../guides/cells.md) are tours with examples.

<!-- `make reference` writes this page, from signatures and docstrings in python/pithead. -->
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD.rstrip()]
    for name in _MODULES:
        module = importlib.import_module(name)
        parts += [f"## {name}", *_prose(parsed(module.__doc__), examples=name == "pithead")]
        for what in _names(module):
            parts += _thing(name, what, _get(module, what))
    return wrapped("\n\n".join(parts)) + "\n"


def undocumented() -> list[str]:
    """Public names without a docstring."""
    lost = []
    for name in _MODULES:
        module = importlib.import_module(name)
        for what in _names(module):
            thing = _get(module, what)
            if not inspect.getdoc(thing):
                lost.append(f"{name}.{what}")
            if inspect.isclass(thing):
                found = _members(thing)
                lost += [f"{name}.{what}.{each}" for each, member in found if not _documented(thing, each, member)]
    return lost


def _names(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name, thing in vars(module).items() if _is_own(module, name, thing)]
    things = [name for name in names if not inspect.ismodule(getattr(module, name)) and not name.startswith("__")]
    also = [name for name in _ALSO.get(module.__name__, []) if name not in things]
    return sorted([*things, *also], key=lambda name: _rank(_get(module, name)))


def _rank(thing: Any) -> int:
    """Functions come first, then classes, then exceptions, each as the module has them."""
    if not inspect.isclass(thing):
        return 0
    return 2 if issubclass(thing, Exception) else 1


def _is_own(module: ModuleType, name: str, thing: Any) -> bool:
    return not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__


def _get(module: ModuleType, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _thing(module: str, name: str, thing: Any) -> Iterator[str]:
    full = f"{module}.{name.split('.')[-1]}"
    yield f"### {full}"
    if inspect.isclass(thing):
        yield from _class(full, thing)
    elif callable(thing):
        yield from _function(full, thing)
    else:
        yield from _prose(parsed(inspect.getdoc(thing)), type(thing))


def _class(full: str, thing: type) -> Iterator[str]:
    if issubclass(thing, Exception):
        bases = [base.__name__ for base in thing.__bases__]
        yield f"An exception; its bases are `{'`, `'.join(bases)}`."
    if "__init__" in vars(thing) and parsed(inspect.getdoc(thing)).sections.get("Parameters"):
        yield _signature(full, thing.__init__)  # type: ignore[misc]
    yield from _prose(parsed(thing.__doc__), thing)
    for name, member in _members(thing):
        short = f"{thing.__name__}.{name}"
        if isinstance(member, property):
            yield f"**`{short}`** (`{_annotation(member.fget, 'return')}`): {' '.join(parsed(member.__doc__).text)}"
        else:
            yield f"#### {short}"
            yield from _function(short, _plain(member), inspect.getdoc(getattr(thing, name)))


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the class itself has, unless it only overrides what its base tells."""
    for name, member in vars(thing).items():
        is_member = isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)
        overrides = not getattr(member, "__doc__", None) and any(hasattr(base, name) for base in thing.__bases__)
        if not name.startswith("_") and is_member and not overrides:
            yield name, member


def _documented(thing: type, name: str, member: Any) -> bool:
    return bool(member.__doc__ if isinstance(member, property) else inspect.getdoc(getattr(thing, name)))


def _plain(member: Any) -> Any:
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def _function(full: str, function: Any, text: str | None = None) -> Iterator[str]:
    yield _signature(full, function)
    yield from _prose(parsed(text or inspect.getdoc(function)), function)


def _prose(found: Docstring, of: Any = None, examples: bool = True) -> Iterator[str]:
    yield from found.text[:1]
    for section, entries in found.sections.items():
        yield {"Parameters": _parameters, "Attributes": _attributes}.get(section, _list)(section, entries, of)
    yield from found.text[1:]
    if found.examples and examples:
        yield "```pycon\n" + "\n".join(found.examples) + "\n```"


def _parameters(_: str, entries: list[tuple[str, str]], function: Any) -> str:
    function = function.__init__ if inspect.isclass(function) else function
    known = inspect.signature(function).parameters
    rows = []
    for names, text in entries:
        for name in names.split(", "):
            if name not in known:
                raise SystemExit(f"{function.__qualname__}: its docstring tells of {name}, which is no parameter")
        rows.append([_code(names), text])
    return _table(["parameter", "meaning"], rows)


def _attributes(_: str, entries: list[tuple[str, str]], thing: Any) -> str:
    types = {each.name: str(each.type) for each in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else {}
    rows = []
    for names, text in entries:
        kinds = dict.fromkeys(types[name] for name in names.split(", ") if name in types)
        rows.append([_code(names), text, *([", ".join(f"`{kind}`" for kind in kinds)] if types else [])])
    return _table(["attribute", "meaning", *(["type"] if types else [])], rows)


def _list(section: str, entries: list[tuple[str, str]], _: Any) -> str:
    return f"{section}:\n\n" + "\n".join(f"- `{name}`: {text}" for name, text in entries)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join([row(heads), "|" + "---|" * len(heads), *map(row, rows)])


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _annotation(function: Any, name: str) -> str:
    return str(inspect.get_annotations(function).get(name, "Any"))


def _signature(full: str, function: Any) -> str:
    """How it is called: on one line or, where that is long, with a parameter a line."""
    found = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    parameters = [_parameter(each) for each in found]
    kinds = [each.kind for each in found]
    if inspect.Parameter.VAR_POSITIONAL not in kinds and inspect.Parameter.KEYWORD_ONLY in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = inspect.get_annotations(function).get("return")
    end = "" if inspect.isclass(function) or result in (None, "None") else f" -> {result}"
    text = f"{full}({', '.join(parameters)}){end}"
    if len(text) > 110:
        text = f"{full}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){end}"
    return f"```python\n{text}\n```"


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" if each.kind == each.VAR_POSITIONAL else "**" if each.kind == each.VAR_KEYWORD else ""
    kind = "" if each.annotation is each.empty else f": {each.annotation}"
    if each.default is each.empty:
        return f"{stars}{each.name}{kind}"
    shown = f'"{each.default}"' if isinstance(each.default, str) else repr(each.default)
    return f"{stars}{each.name}{kind}{' = ' if kind else '='}{shown}"
