"""Route of embeddings in the shape of OpenAI: the vectors that the indexes are made of."""

from __future__ import annotations

import base64

from fastapi import APIRouter

from api.errors import document_errors
from api.services import ServicesDep
from kb.errors import CallerError, TextTooLongError
from kb.schemas import EmbeddingOut, EmbeddingsIn, EmbeddingsOut, EmbeddingsUsageOut

router = APIRouter(prefix="/v1", tags=["OpenAI"])


@router.post(
    "/embeddings",
    summary="Turn texts into vectors",
    responses=document_errors(CallerError, TextTooLongError),
)
def create_embeddings(body: EmbeddingsIn, services: ServicesDep) -> EmbeddingsOut:
    """One unit vector a text, from the service's own embedder whatever `model` says.

    A text that is longer than the embedder reads is refused, never cut. With `input_type: query` it is
    embedded as a question, which matters to embedders with prompts.
    """
    texts = [body.input] if isinstance(body.input, str) else body.input
    if any(not text.strip() for text in texts):
        raise CallerError("a text is empty", next_step="Leave empty texts out.")
    embedder = services.knowledge.embedder
    if body.dimensions not in (None, embedder.dimension):
        raise CallerError(
            f"the embedder makes vectors of {embedder.dimension} numbers, not {body.dimensions}",
            next_step="Leave dimensions out.",
        )
    counts = [embedder.count_tokens(text) for text in texts]
    for position, count in enumerate(counts):
        if count > embedder.max_tokens:
            raise TextTooLongError(position, tokens=count, limit_tokens=embedder.max_tokens)
    if body.input_type == "query":
        rows = [embedder.embed_query(text) for text in texts]
    else:
        rows = list(embedder.embed_passages(texts))
    data = [
        EmbeddingOut(
            index=position,
            embedding=base64.b64encode(row.astype("<f4").tobytes()).decode()
            if body.encoding_format == "base64"
            else [float(number) for number in row],
        )
        for position, row in enumerate(rows)
    ]
    total = sum(counts)
    return EmbeddingsOut(
        data=data, model=body.model, usage=EmbeddingsUsageOut(prompt_tokens=total, total_tokens=total)
    )
