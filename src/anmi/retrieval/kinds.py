"""For all encoders: their kind and prompts, the device and precision they run in, quiet loading.

An encoder that was trained with ``query: `` and ``passage: `` is another one without them. So
prompts belong to the model: they are settled once, when it is loaded, and whoever encodes, trains
or saves takes them from it.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from anmi.errors import AnmiError
from anmi.ragged import Int64s
from anmi.retrieval.token_table import TokenTable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

_TABLES: Final = ("StaticEmbedding", "SparseStaticEmbedding", "LexicalExpansion")


@contextmanager
def quieter(*names: str, level: int = logging.ERROR) -> Iterator[None]:
    """Let loggers report only errors, or whatever is at least as severe as ``level``."""
    loggers = {logger: logger.level for logger in map(logging.getLogger, names)}
    try:
        for logger in loggers:
            logger.setLevel(level)
        yield
    finally:
        for logger, saved_level in loggers.items():
            logger.setLevel(saved_level)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the load reports, progress bars and warnings of loading and training."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # A cross-encoder started from a bi-encoder is what we want, not something to be warned of.
    with quieter("sentence_transformers", "transformers"):
        yield


def device(name: str | None = None) -> str:
    """Return the device that is named, or else the first of ``cuda``, ``mps`` and ``cpu``.

    Raises
    ------
    AnmiError
        This machine does not have it.
    """
    import torch

    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    present = [f"cuda:{number}" for number in range(cards)]
    if torch.backends.mps.is_available():
        present.append("mps")
    present.append("cpu")
    if name is None:
        return present[0].removesuffix(":0")
    if name not in ("cuda", *present) or (name == "cuda" and not cards):
        raise AnmiError(
            f"dense.device is {name}, and this machine has {', '.join(present)}: set it to one of"
            " these, or to null"
        )
    return name


def is_static(model: SentenceTransformer | TokenTable) -> bool:
    """Tell whether the model looks tokens up in tables instead of running a network."""
    if isinstance(model, TokenTable):
        return True
    routes = model[0].sub_modules.values() if is_routed(model) else [model]
    return all(type(modules[0]).__name__ in _TABLES for modules in routes)


def is_routed(model: SentenceTransformer | TokenTable) -> bool:
    """Tell whether the model encodes queries and documents with separate weights."""
    return not isinstance(model, TokenTable) and type(model[0]).__name__ == "Router"


def is_sparse(model: Any) -> bool:
    """Tell whether the model gives weights of terms, compared by inner products."""
    return type(model).__name__ == "SparseEncoder"


def is_dot(model: Any) -> bool:
    """Tell whether a dense model's vectors are compared by inner products, of any length."""
    if is_sparse(model) or getattr(model, "similarity_fn_name", None) != "dot":
        return False
    if isinstance(model, TokenTable):
        return not model.normalised
    lengths_differ = all(type(module).__name__ != "Normalize" for module in model.modules())
    return lengths_differ or model.truncate_dim is not None


def resolve_precision(precision: str, device_type: str | None = None) -> str:
    """Return ``bfloat16`` for ``auto`` where the device has it in hardware, else ``float32``."""
    if precision != "auto":
        return precision
    device_type = device_type or device()
    if device_type == "cuda":
        import torch

        # A card that emulates it, as T4 and V100 do, is slower by it than in float32.
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if has_bfloat16 else "float32"
    if device_type != "cpu":
        return "float32"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "bfloat16" if ("avx512_bf16" in flags or "amx_bf16" in flags) else "float32"


def autocast(model: Any, precision: str) -> Any:
    """Return a context in which matrix products of a model run in the given precision."""
    import torch

    device_type = str(model.device.type)
    if resolve_precision(precision, device_type) == "bfloat16":
        return torch.autocast(device_type, torch.bfloat16)
    return nullcontext()


def exact_precision(model: SentenceTransformer | TokenTable, precision: str) -> str:
    """Resolve the precision for a model; a table of token vectors always computes in float32."""
    if isinstance(model, TokenTable) or is_static(model):
        return "float32"
    return resolve_precision(precision, model.device.type)


def training_precision(model: SentenceTransformer, precision: str) -> str:
    """Resolve the precision of a training: ``float16``, scaled, on a card without bfloat16."""
    exact = exact_precision(model, precision)
    is_old_card = precision == "auto" and exact == "float32" and model.device.type == "cuda"
    return "float16" if is_old_card and not is_static(model) else exact


def pad_by_end(model: Any) -> None:
    """Let a tokenizer without a padding token pad by the one that ends texts; it is masked."""
    for module in model.modules():
        tokenizer: Any = getattr(module, "tokenizer", None)
        if getattr(tokenizer, "pad_token", "") is None:
            tokenizer.pad_token = tokenizer.eos_token


def in_float32(model: Any) -> Any:
    """Turn weights into float32, in place; ``saved_as`` of the model says what they were saved as.

    In float16 steps of training overflow, in bfloat16 small ones are lost, and a text has other
    vectors in other company; what computes in less is for the precision to say.
    """
    types = {str(weights.dtype).removeprefix("torch.") for weights in model.parameters()}
    model.saved_as = getattr(model, "saved_as", " and ".join(sorted(types)))
    return model.float()


# Of a pass on a processor: with more what layers pass on no longer fits its caches.
_TOKENS: Final = 2048
# Bytes of a card's memory for each token of a pass: 8 GB take 4,096 tokens, 80 GB 32,768.
_BYTES_PER_TOKEN: Final = 1 << 21
# UTF-8 bytes of a token, rather too few: words of Latin letters have 4 to 5, a Korean or Chinese
# character 3.
_BYTES: Final = 3


def default_tokens_per_pass(model: Any) -> int:
    """Return how many tokens a pass takes by default: by the card's memory, a power of two."""
    if model.device.type != "cuda":
        return _TOKENS
    import torch

    memory = torch.cuda.get_device_properties(model.device).total_memory
    return max(_TOKENS, 1 << (memory // _BYTES_PER_TOKEN).bit_length() - 1)


def check_tokens_per_pass(tokens: int | None, lengths: Int64s, prefix: str) -> None:
    """Raise an AnmiError where the setting of that prefix is less than the tokens of a text."""
    if tokens is not None and lengths.max(initial=0) > tokens:
        raise AnmiError(
            f"a text has {lengths.max():,} tokens, and {prefix}.tokens_per_pass={tokens} is less:"
            f" raise it, or lower {prefix}.max_length"
        )


def texts_per_block(model: Any) -> int:
    """Return among how many texts those of a pass are chosen.

    A text has the same company wherever it is computed, if its part begins at a multiple of it.
    """
    return 256 if model.device.type == "cpu" else 16_384


def estimated_lengths(texts: Sequence[str], longest: int | None) -> Int64s:
    """Return about how many tokens texts have, [T], rather too many; ``longest`` cuts them.

    Examples
    --------
    >>> estimated_lengths(["a b c d", ""], None).tolist()
    [4, 2]
    """
    lengths = [len(text.encode(errors="surrogatepass")) // _BYTES + 2 for text in texts]
    return np.minimum(np.array(lengths, np.int64), longest or np.inf).astype(np.int64)


def passes(lengths: Int64s, tokens: int, block: int) -> list[Int64s]:
    """Group the places of texts for one forward pass each, within each block the longest first.

    Parameters
    ----------
    lengths
        Tokens of T texts.
    tokens
        Of a pass at most, padding included; a longer text has a pass of its own.
    block
        Texts that are sorted together.

    Examples
    --------
    >>> [group.tolist() for group in passes(np.array([2, 1, 3, 1]), tokens=4, block=4)]
    [[2], [0, 1], [3]]
    """
    groups = []
    for begin in range(0, len(lengths), block):
        order = begin + np.argsort(-lengths[begin : begin + block], kind="stable")
        start = 0
        while start < len(order):
            room = max(1, tokens // max(1, int(lengths[order[start]])))
            groups.append(order[start : start + room])
            start += room
    return groups


def two_encoders(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model that encodes queries and documents with weights of their own, copies of one.

    It is an ordinary sentence-transformers model with a ``Router`` as its first module:
    ``encode_query`` and ``encode_document``, or ``encode`` with a ``task``, choose the copy, and it
    is saved and loaded as any other. ``model`` stays as it is; one that has two encoders already is
    returned itself.

    References
    ----------
    Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", arXiv
    2004.04906.
    """
    if is_routed(model):
        return model
    from sentence_transformers.base.modules import Router

    router = Router.for_query_document(
        *([copy.deepcopy(part) for part in model.children()] for _ in range(2))
    )
    return _of_modules([router], model)


def side_of(model: SentenceTransformer | TokenTable, role: str | None) -> Any:
    """Return the part of a model that encodes texts of a role: of one encoder the model itself.

    It shares its weights with the model.
    """
    if role is None or isinstance(model, TokenTable) or not is_routed(model):
        return model
    router, *after = model.children()
    sides: Any = router.sub_modules
    return _of_modules([*sides[role].children(), *after], model)


def _of_modules(modules: Sequence[Any], model: SentenceTransformer) -> SentenceTransformer:
    """Return a model of some modules with the prompts and settings of another."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        modules=list(modules),
        device=str(model.device),
        prompts=dict(model.prompts),
        truncate_dim=model.truncate_dim,
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
    )


# By what names a folder may call the prompt of each role, in the order in which
# sentence-transformers asks for them.
_QUERY: Final = "query"
_DOCUMENT: Final = ("document", "passage", "corpus")


def _text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    # To YAML, as which Kedro reads the command line, a colon and a blank make a mapping.
    raise ValueError(
        "a text was expected; on the command line put it in quotes, as in"
        " dense.prompt_query='query: '"
    )


Prompt = Annotated[str | None, BeforeValidator(_text)]
_DATA_ONLY: Final = "a model is data, of which no code is run: leave it out"
# Arguments of a network that another setting gives, or none may.
_ELSEWHERE: Final = {
    "attn_implementation": "set dense.attention",
    "device_map": "set dense.device",
    "dtype": "set dense.precision",
    "torch_dtype": "set dense.precision",
    "trust_remote_code": _DATA_ONLY,
    "use_safetensors": _DATA_ONLY,
    "weights_only": _DATA_ONLY,
}


def _of_no_other_setting(model_kwargs: dict[str, Any]) -> dict[str, Any]:
    for name in model_kwargs.keys() & _ELSEWHERE.keys():
        raise ValueError(f"{name} is not taken: {_ELSEWHERE[name]}")
    return model_kwargs


class EncoderSettings(BaseModel):
    """Which encoder it is, and how it encodes.

    Attributes
    ----------
    encoder
        Name, folder or hub name; None takes the encoder that is trained.
    max_length
        Most tokens of a text and its prompt; None: the model's own limit.
    precision
        Of torch's matrix products; vectors are float32.
    tokens_per_pass
        Tokens of a forward pass at most, see :func:`passes`; None goes by the memory of the card.
    device
        ``cpu``, ``mps``, ``cuda`` or ``cuda:1``; None for the best, see :func:`device`.
    attention
        Which implementation of attention runs it; None: the library's choice.
    model_kwargs
        Further arguments of the network's ``from_pretrained``.
    prompt_query, prompt_document
        In place of the model's own; None keeps these, and an empty text is no prompt.
    dimensions
        How many of a vector's dimensions are used, the first ones; None: all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = None
    max_length: int | None = Field(None, ge=4)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    tokens_per_pass: int | None = Field(None, ge=1)
    device: str | None = Field(None, pattern=r"^(cpu|mps|cuda(:\d+)?)$")
    attention: Literal["eager", "sdpa", "flash_attention_2"] | None = None
    model_kwargs: Annotated[dict[str, Any], AfterValidator(_of_no_other_setting)] = {}
    prompt_query: Prompt = None
    prompt_document: Prompt = None
    dimensions: int | None = Field(None, ge=1)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def of(self, encoder: str, **changes: Any) -> EncoderSettings:
        """Return these settings, and nothing else that is set beside them, for another encoder."""
        settings = self.model_dump(include=set(EncoderSettings.model_fields))
        return EncoderSettings(**settings | {"encoder": encoder} | changes)

    def as_saved(self, encoder: str, **changes: Any) -> EncoderSettings:
        """Return these settings for an encoder that has the prompts of its folder."""
        return self.of(encoder, prompt_query=None, prompt_document=None, **changes)


def prompts_of(model: SentenceTransformer | TokenTable) -> dict[str, str]:
    """Return what a model puts before texts of each role, ``query`` and ``document``.

    They are the prompts that ``encode_query`` and ``encode_document`` of sentence-transformers use,
    except that an empty prompt ``document`` does not hide one called ``passage`` or ``corpus``:
    release 6 adds the empty one to every model that does not name it, and so would encode documents
    of a model trained with ``passage: `` without it. The default prompt, which those methods do not
    use, counts for neither role.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> prompts_of(SimpleNamespace(prompts={"query": "q: ", "document": "", "passage": "p: "}))
    {'query': 'q: ', 'document': 'p: '}
    """
    prompts = getattr(model, "prompts", None) or {}
    document = next((prompts[name] for name in _DOCUMENT if prompts.get(name)), "")
    return {"query": prompts.get(_QUERY) or "", "document": document}


def settle_prompts(
    model: SentenceTransformer | TokenTable,
    query: str | None = None,
    document: str | None = None,
) -> None:
    """Write a model's prompts, or those in their place, where sentence-transformers looks for them.

    Afterwards ``encode_query`` and ``encode_document`` use them, also those of the saved model.

    Parameters
    ----------
    model
        Its prompts ``query`` and ``document`` are set.
    query, document
        Those that are not None win over the model's own.
    """
    saved = dict(model.prompts)
    by_role = prompts_of(model)
    default = saved.get(model.default_prompt_name)
    if document is None and by_role["document"] != (saved.get("document") or ""):
        tell(
            f'documents get the prompt "{by_role["document"]}", which the model calls otherwise'
            ' than "document", so that encode_document of sentence-transformers would leave it out;'
            " dense.prompt_document sets another, '' none"
        )
    if query is document is None and default and default not in by_role.values():
        tell(
            f'the default prompt "{default}" of the model is not used, as encode_query and'
            " encode_document of sentence-transformers do not; dense.prompt_query and"
            " dense.prompt_document set it"
        )
    model.prompts = saved | by_role
    if query is not None:
        model.prompts[_QUERY] = query
    if document is not None:
        # By all its names, or the old text would come back by one of them where the new one is
        # empty.
        model.prompts |= {name: document for name in _DOCUMENT if name in model.prompts}


def in_words(prompts: Mapping[str, str]) -> str:
    """Write the prompts of :func:`prompts_of` for people.

    Examples
    --------
    >>> in_words({"query": "query: ", "document": ""})
    '"query: " before queries, none before documents'
    >>> in_words({"query": "", "document": ""})
    'none'
    """
    if not any(prompts.values()):
        return "none"
    query, document = (
        json.dumps(prompts[role], ensure_ascii=False) if prompts[role] else "none"
        for role in ("query", "document")
    )
    return f"{query} before queries, {document} before documents"


@cache
def tell(text: str) -> None:
    """Warn once: an encoder is loaded several times in a run."""
    log.warning("%s", text)
