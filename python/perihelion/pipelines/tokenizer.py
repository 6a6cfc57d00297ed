"""The tokenizers of models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods

from . import keywords

__all__ = ["Encoding", "Tokenizer"]


class Encoding(dict[str, Any]):
    """The tokens of a text, or of several: `input_ids`, `attention_mask` and, if asked for, `offset_mapping`. Its entries
    are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"the encoding has no {name!r}, only {', '.join(self)}")


class Tokenizer:
    """The tokenizer of a model.

    >>> from perihelion import LLM
    >>> llm = LLM()
    >>> tokenizer = llm.tokenizer
    >>> tokenizer.decode(tokenizer.encode("The fox"), skip_special_tokens=True)
    'The fox'
    >>> tokenizer("The fox", add_special_tokens=False, return_offsets_mapping=True).offset_mapping
    [(0, 3), (3, 7)]
    """

    __slots__ = ("_native",)

    def __init__(self, native: _perihelion.Generator) -> None:
        self._native = native

    def __call__(
        self, text: str | Sequence[str], *, add_special_tokens: bool = True, return_offsets_mapping: bool = False
    ) -> Encoding:
        """The tokens of a text, or of several texts, as tokenizers of Transformers give them.

        `offset_mapping` has the first character of the text that each token stands for, and the one behind its last;
        `(0, 0)` for tokens around the text. Without padding, all of `attention_mask` is 1.

        Raises:
            ValueError: the places of tokens are not known, because this tokenizer changes texts.
        """
        if isinstance(text, str):
            return Encoding(self._encoding(text, add_special_tokens, return_offsets_mapping))
        given = keywords.texts("text", text)
        encodings = [self._encoding(one, add_special_tokens, return_offsets_mapping) for one in given]
        names = ["input_ids", "attention_mask", *(["offset_mapping"] if return_offsets_mapping else [])]
        return Encoding({name: [one[name] for one in encodings] for name in names})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text, by default with those that the model wants around it."""
        keywords.text("text", text)
        return self._native.encode(text, keywords.flag("add_special_tokens", add_special_tokens), True)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of tokens."""
        return self._native.decode(token_list("token_ids", token_ids), keywords.flag("skip_special_tokens", skip_special_tokens))

    def batch_decode(self, sequences: Iterable[Sequence[int]], *, skip_special_tokens: bool = False) -> list[str]:
        """The texts of several sequences of tokens."""
        return [self.decode(one, skip_special_tokens=skip_special_tokens) for one in sequences]

    @overload
    def convert_ids_to_tokens(self, ids: int) -> str | None: ...
    @overload
    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]: ...
    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> str | None | list[str | None]:
        """Tokens as the vocabulary writes them, with its marks for spaces and bytes; `None` for ids that it does not have."""
        if hasattr(ids, "__index__"):
            return self._native.token(token_list("ids", [ids])[0])
        return [self._native.token(one) for one in token_list("ids", ids)]

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int | None: ...
    @overload
    def convert_tokens_to_ids(self, tokens: list[str] | tuple[str, ...]) -> list[int | None]: ...
    def convert_tokens_to_ids(self, tokens: str | list[str] | tuple[str, ...]) -> int | None | list[int | None]:
        """The ids of tokens as the vocabulary writes them; `None` for those that it does not have."""
        if isinstance(tokens, str):
            return self._native.token_id(tokens)
        return [self._native.token_id(one) for one in keywords.texts("tokens", tokens)]

    @property
    def vocab_size(self) -> int:
        """One more than the highest token."""
        return self._native.vocabulary()[0]

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        return self._native.vocabulary()[1]

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text, if there is one."""
        return self._native.vocabulary()[2]

    @property
    def eos_token_ids(self) -> list[int]:
        """All tokens that end an answer."""
        return self._native.vocabulary()[3]

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size})"

    def _encoding(self, text: str, add_special: bool, with_places: bool) -> dict[str, Any]:
        if not with_places:
            ids = self.encode(text, add_special_tokens=add_special)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        ids, places = self._native.encode_places(text, keywords.flag("add_special_tokens", add_special))
        if text and ids and not any(places):
            raise ValueError("return_offsets_mapping: this tokenizer changes texts, so that places in them are not known")
        offsets = [place or (0, 0) for place in places]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "offset_mapping": offsets}


def token_list(name: str, tokens: Any) -> list[int]:
    """Tokens as a list.

    Raises:
        TypeError: one of them is not a whole number.
        ValueError: one of them cannot be a token.
    """
    if isinstance(tokens, (str, bytes, bytearray)) or not isinstance(tokens, Iterable):
        raise TypeError(f"{name}: got {type(tokens).__name__}, expected a list of tokens")
    found = []
    for token in tokens:
        if type(token) is not int:
            if not hasattr(token, "__index__"):
                raise TypeError(f"{name}: got a list with {type(token).__name__}, expected tokens, which are whole numbers")
            token = token.__index__()
        if not 0 <= token < 1 << 32:
            raise ValueError(f"{name}: token {token} is beyond any model's vocabulary")
        found.append(token)
    return found


shorten_methods(Tokenizer)
