"""What works in a script without Kedro: mining negatives, and auditing those of others."""

from anmi.api.audit import Audit, audit_negatives
from anmi.api.mine import MiningInfo, mine_hard_negatives

__all__ = ["Audit", "MiningInfo", "audit_negatives", "mine_hard_negatives"]
