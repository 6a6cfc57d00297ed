"""JSON schemas of Python's types, and of objects that know theirs, such as classes of pydantic."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union

__all__ = ["close_objects", "function_schema", "schema_of"]

_PLAIN: dict[Any, dict[str, Any]] = {
    Any: {},
    object: {},
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
# Keywords whose values are a schema, schemas by name, and lists of schemas.
_OF_SCHEMA = {"additionalProperties", "contains", "items", "unevaluatedItems", "unevaluatedProperties"}
_OF_MAP = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
_OF_LIST = {"anyOf", "oneOf", "prefixItems"}
# Where several schemas together describe an object, none of them may forbid the properties of the others.
_COMPOSED = {"allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "$ref"}


def schema_of(form: Any) -> Any:
    """The schema that a form stands for: a schema or its text as they are; that of a class of pydantic, or another
    object with `model_json_schema` or `json_schema`; that of a dataclass, a `TypedDict`, or another type.

    Raises:
        TypeError: the type has no schema that is known here.

    >>> schema_of(list[Literal["yes", "no"]])
    {'type': 'array', 'items': {'enum': ['yes', 'no']}}
    """
    if isinstance(form, (str, Mapping)):
        return form
    own = _own_schema(form)
    return _Types().whole(form) if own is None else own


def close_objects(schema: Any) -> Any:
    """The schema without further properties of objects, wherever it does not say whether there may be any.

    >>> close_objects({"type": "object", "properties": {"a": {}}})
    {'type': 'object', 'properties': {'a': {}}, 'additionalProperties': False}
    """
    if not isinstance(schema, Mapping):
        return schema
    is_composed = not _COMPOSED.isdisjoint(schema) and "properties" in schema
    closed = dict(schema) if is_composed else {key: _closed(key, value) for key, value in schema.items()}
    if "properties" in schema and not is_composed and "unevaluatedProperties" not in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """A function as a tool in the shape of the OpenAI API. Its annotations make the schema of its arguments, and its
    docstring describes it.

    >>> def add(a: int, b: int = 0) -> int:
    ...     "Adds two numbers."
    >>> function_schema(add)["function"]["parameters"]["required"]
    ['a']
    """
    signature, hints = inspect.signature(function), typing.get_type_hints(function)
    types, properties, required = _Types(), {}, []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tools: {function.__name__} takes {parameter}, but calls name all arguments")
        properties[name] = types.schema(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
    parameters = types.object(properties, required)
    described = inspect.getdoc(function)
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            **({"description": described} if described else {}),
            "parameters": {**parameters, **types.definitions()},
        },
    }


def _own_schema(form: Any) -> Any:
    for name in ("model_json_schema", "json_schema"):
        make = getattr(form, name, None)
        if callable(make):
            return make()
    return None


def _closed(key: str, value: Any) -> Any:
    if key in _OF_SCHEMA:
        return [close_objects(one) for one in value] if isinstance(value, list) else close_objects(value)
    if key in _OF_MAP and isinstance(value, Mapping):
        return {name: close_objects(one) for name, one in value.items()}
    if key in _OF_LIST and isinstance(value, list):
        return [close_objects(one) for one in value]
    return value


class _Types:
    """Makes schemas of types. Those with fields become definitions, so that they may refer to themselves."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._made: dict[str, Any] = {}

    def whole(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, with the definitions that it refers to."""
        schema = self.schema(kind)
        name = self._names.get(kind) if isinstance(kind, type) else None
        # The definition itself, unless another refers to it.
        if name is not None and f'"#/$defs/{name}"' not in json.dumps(self._made):
            schema = self._made.pop(name)
        return {**schema, **self.definitions()}

    def definitions(self) -> dict[str, Any]:
        return {"$defs": self._made} if self._made else {}

    def object(self, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def schema(self, kind: Any) -> dict[str, Any]:
        try:
            if kind in _PLAIN:
                return dict(_PLAIN[kind])
        except TypeError:
            pass  # What cannot be hashed is not one of these.
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is not None:
            return self._generic(kind, origin, arguments)
        own = _own_schema(kind)
        if own is not None:
            self._made.update(own.pop("$defs", {}))
            return dict(own)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
            return self._fields(kind)
        generic: dict[Any, dict[str, Any]] = {dict: {"type": "object"}, list: {"type": "array"}, tuple: {"type": "array"}}
        if kind in generic:
            return generic[kind]
        raise TypeError(f"json_schema: {kind!r} has no schema: give a schema, a class of pydantic or a dataclass")

    def _generic(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.schema(one) for one in arguments]}
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            items = [self.schema(one) for one in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        if isinstance(origin, type) and issubclass(origin, Collection):
            return {"type": "array", "items": self.schema(arguments[0])}
        # `Annotated`, `Required`, `NotRequired`.
        if hasattr(kind, "__metadata__") or str(origin).endswith("Required"):
            return self.schema(arguments[0])
        raise TypeError(f"json_schema: {kind!r} has no schema: give a schema, a class of pydantic or a dataclass")

    def _fields(self, kind: Any) -> dict[str, Any]:
        """A reference to the definition of a type with fields."""
        if kind not in self._names:
            name = kind.__name__
            while name in self._made:
                name += "_"
            self._names[kind], self._made[name] = name, None
            hints = typing.get_type_hints(kind)
            required = [one for one in hints if one in getattr(kind, "__required_keys__", ())]
            if dataclasses.is_dataclass(kind):
                fields, missing = dataclasses.fields(kind), dataclasses.MISSING
                hints = {one.name: hints[one.name] for one in fields}
                required = [one.name for one in fields if one.default is missing and one.default_factory is missing]
            properties = {one: self.schema(hint) for one, hint in hints.items()}
            self._made[name] = self.object(properties, required)
        return {"$ref": f"#/$defs/{self._names[kind]}"}
