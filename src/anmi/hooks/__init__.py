"""What happens around a run: checks, the manifest, timing, tracking, one retraining at a time."""

from anmi.hooks.checks import CheckHooks
from anmi.hooks.manifest import ManifestHooks
from anmi.hooks.retraining import RetrainHooks
from anmi.hooks.timing import TimingHooks
from anmi.hooks.tracking import TrackingHooks
from anmi.runs.record import RunRecord

__all__ = ["CheckHooks", "ManifestHooks", "RetrainHooks", "RunRecord", "TimingHooks", "TrackingHooks"]
