"""Routes of the evidence that answers from a collection need."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Response

from api.access import AuditDep, require
from api.convert import build_calibration
from api.errors import document_errors
from api.services import ServicesDep
from kb.access import Role
from kb.errors import CollectionNotFoundError, NotCalibratedError
from kb.schemas import CalibrationIn, CalibrationOut
from kb.types import Calibration

router = APIRouter(prefix="/v1/collections/{collection}/calibration", tags=["Collections"])


@router.get(
    "",
    summary="Show the calibration",
    responses=document_errors(CollectionNotFoundError, NotCalibratedError),
)
def get_calibration(collection: str, services: ServicesDep) -> CalibrationOut:
    """The threshold of the collection, what it was measured with, and what has changed since."""
    found = services.knowledge.catalog.get_collection(collection)
    if found.calibration is None:
        raise NotCalibratedError(found.name)
    parts = services.knowledge.get_index_parts()
    return build_calibration(found.calibration, parts=parts, collection=found.name)


@router.put(
    "",
    summary="Set the calibration",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(CollectionNotFoundError),
)
def set_calibration(
    collection: str, body: CalibrationIn, services: ServicesDep, audit: AuditDep
) -> CalibrationOut:
    """Answers from the collection need this much evidence from now on; `kb calibrate` measures it."""
    catalog = services.knowledge.catalog
    found = catalog.get_collection(collection)
    parts = services.knowledge.get_index_parts()
    calibration = Calibration(**body.model_dump(), parts=parts, measured_at=datetime.now(UTC))
    catalog.save_calibration(found.id, calibration)
    audit.record("calibration.set", collection=found.name, threshold=f"{calibration.threshold:.4f}")
    return build_calibration(calibration, parts=parts, collection=found.name)


@router.delete(
    "",
    status_code=204,
    summary="Forget the calibration",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(CollectionNotFoundError),
)
def delete_calibration(collection: str, services: ServicesDep, audit: AuditDep) -> Response:
    """The collection goes back to the threshold of the settings."""
    catalog = services.knowledge.catalog
    found = catalog.get_collection(collection)
    catalog.save_calibration(found.id, None)
    audit.record("calibration.delete", collection=found.name)
    return Response(status_code=204)
