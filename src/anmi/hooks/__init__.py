"""What happens around a run: checks, the manifest, timing, tracking."""

from anmi.hooks.checks import CheckHooks
from anmi.hooks.manifest import ManifestHooks
from anmi.hooks.record import RunRecord
from anmi.hooks.timing import TimingHooks
from anmi.hooks.tracking import TrackingHooks

__all__ = ["CheckHooks", "ManifestHooks", "RunRecord", "TimingHooks", "TrackingHooks"]
