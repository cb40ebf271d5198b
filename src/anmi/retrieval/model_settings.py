"""What a model does besides its weights: the part of its fingerprint that is not a tensor."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from anmi.fingerprint import hash_file

# Settings that say where a model comes from or how it is run, not what it computes; the type of the weights is taken
# from the weights.
_ORIGIN: Final = re.compile(
    r"_?name_or_path|transformers_version|architectures|(torch_)?dtype|_?attn_implementation.*|is_local|files_loaded|.*_file"
)
# What a tokenizer does besides what its Rust backend knows; the last two are those of plain word tokenizers.
_TOKENIZER_SETTINGS: Final = (
    "truncation_side", "padding_side", "special_tokens_map", "pad_token_type_id", "model_input_names",
    "split_special_tokens", "chat_template", "do_lower_case", "stop_words",
)  # fmt: skip


def as_text(value: Any) -> str:
    """Write a value the same way in every process: dictionaries and sets in the order of what they hold."""
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{key!r}:{as_text(each)}' for key, each in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(as_text, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_text, value))}]"
    return repr(value)


def modules_of(model: Any) -> list[Any]:
    """Return what each module does besides its weights: kind of pooling, activation, heads, tokens and their number."""
    found: list[Any] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        if not path:
            continue
        settings = module.get_config_dict() if hasattr(module, "get_config_dict") else module.extra_repr()
        # A router's is that of its routes, and where they differ it warns of it.
        longest = None if type(module).__name__ == "Router" else getattr(module, "max_seq_length", None)
        found.append((path, type(module).__name__, settings, longest))
        # The layers of a network share its configuration, the routes of a model may share a tokenizer.
        config: Any = getattr(module, "config", None)
        tokenizer: Any = getattr(module, "tokenizer", None)
        if hasattr(config, "to_dict") and id(config) not in seen:
            found.append(_without_origin(config.to_dict()))
        if tokenizer is not None and id(tokenizer) not in seen:
            found.append(tokenizer_settings(tokenizer))
        seen |= {id(config), id(tokenizer)}
    return found


def _without_origin(value: Any) -> Any:
    """Leave out, at any depth, the settings that say where a model comes from or how it is run."""
    if isinstance(value, Mapping):
        return {key: _without_origin(each) for key, each in value.items() if not _ORIGIN.fullmatch(str(key))}
    return [_without_origin(each) for each in value] if isinstance(value, list | tuple) else value


def tokenizer_settings(tokenizer: Any) -> Any:
    """Everything of a tokenizer that changes the tokens of a text and is not set anew at each call."""
    settings = {name: getattr(tokenizer, name, None) for name in _TOKENIZER_SETTINGS}
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        content = json.loads(backend.to_str())
        if backend is not tokenizer:
            # A call leaves its truncation and padding behind; with them the first use would change the fingerprint.
            content |= {"truncation": None, "padding": None}
        return settings, content
    vocabulary = tokenizer.get_vocab()
    made_with = _without_origin(getattr(tokenizer, "init_kwargs", {}))
    added = getattr(tokenizer, "added_tokens_decoder", {})
    # Those of sentence-transformers give their words in the order of their numbers.
    words = vocabulary if isinstance(vocabulary, Mapping) else list(vocabulary)
    return settings, type(tokenizer).__name__, words, added, made_with, _vocabulary_files(tokenizer)


def _vocabulary_files(tokenizer: Any) -> list[str]:
    """Hashes of the files a tokenizer without a Rust backend writes: merges and scores are in no vocabulary."""
    if not hasattr(tokenizer, "save_vocabulary"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = tokenizer.save_vocabulary(folder) or ()
        except NotImplementedError:
            return []
        return [hash_file(Path(file), "sha256") for file in files]
