"""What chat judges were asked and answered, as traces of MLflow, which its page shows one by one beside the run.

MLflow's functions for tracing write to an address that holds for the whole process. Its client of a store, which they
end in, is given spans instead that are made here from what was noted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.hooks.mlflow_values import batches

# A database takes milliseconds for each, so these take some seconds; the dataset has all that were noted.
MOST: Final = 1000


def log_traces(client: Any, run_id: str, answers: pd.DataFrame) -> None:
    """Write the first answers as traces of a run.

    Parameters
    ----------
    client
        Of MLflow, connected to a database, or to a server of 3.4 or later.
    run_id
        The run that they stand beside.
    answers
        See :func:`anmi.judging.pairwise.answers_of`.
    """
    from mlflow.tracing.client import TracingClient

    experiment = client.get_run(run_id).info.experiment_id
    store = TracingClient(client.tracking_uri)
    for some in batches(list(_spans(answers.head(MOST)))):
        store.log_spans(experiment, some)
        client.link_traces_to_run([span.trace_id for span in some], run_id)


def _spans(answers: pd.DataFrame) -> Iterator[Any]:
    """Yield a span each, which ends now and began as long before as the answer took."""
    from mlflow.entities.span import Span, SpanType
    from mlflow.tracing.constant import SpanAttributeKey
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    end, made = time.time_ns(), RandomIdGenerator()
    for row in answers.to_dict("records"):
        number = made.generate_trace_id()
        context = SpanContext(number, made.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED))
        told: dict[str, Any] = {
            SpanAttributeKey.REQUEST_ID: f"tr-{number:032x}",
            SpanAttributeKey.SPAN_TYPE: SpanType.CHAT_MODEL,
            SpanAttributeKey.INPUTS: {"messages": [{"role": "user", "content": row["question"]}]},
            SpanAttributeKey.OUTPUTS: {"choices": [{"message": {"role": "assistant", "content": row["answer"]}}]},
        }
        if np.isfinite(row["preference"]):
            told["preference"] = row["preference"]
        read, written = row["tokens_read"], row["tokens_written"]
        if np.isfinite(read) and np.isfinite(written):
            told[SpanAttributeKey.CHAT_USAGE] = {
                "input_tokens": int(read), "output_tokens": int(written), "total_tokens": int(read + written)
            }  # fmt: skip
        yield Span(ReadableSpan(
            name=row["judge"], context=context, start_time=end - int(1e6 * row["milliseconds"]), end_time=end,
            attributes={name: json.dumps(value) for name, value in told.items()},
            status=Status(StatusCode.ERROR, row["problem"]) if row["problem"] else Status(StatusCode.OK),
        ))  # fmt: skip
