"""Words and what says the opposite in their place: our own choice of common ones, with the forms of each."""

from __future__ import annotations

from typing import Final

# Each form with its opposite, which is replaced by it in turn unless an earlier line has another for it. Left out are
# words that mean too many things ("close", "light", "present"), and those that need other words beside their opposite
# ("the same as", "most of").
_PAIRS: Final = """
increase/decrease increases/decreases increased/decreased increasing/decreasing
increasingly/decreasingly rise/fall rises/falls rising/falling higher/lower highest/lowest high/low
highly/hardly upper/lower uppermost/lowermost larger/smaller largest/smallest large/small
bigger/smaller biggest/smallest big/small greater/smaller greatest/smallest more/less longer/shorter
longest/shortest long/short older/younger oldest/youngest new/old newer/older newest/oldest
earlier/later earliest/latest early/late faster/slower fastest/slowest fast/slow quickly/slowly
rapid/slow rapidly/slowly stronger/weaker strongest/weakest strong/weak strongly/weakly better/worse
best/worst good/bad harder/easier hardest/easiest difficult/easy wider/narrower widest/narrowest
wide/narrow deeper/shallower deepest/shallowest deep/shallow warmer/cooler warmest/coolest warm/cool
hot/cold richer/poorer thicker/thinner thick/thin maximum/minimum maximal/minimal maximise/minimise
maximises/minimises maximize/minimize maximizes/minimizes first/last before/after previous/next
preceding/following preceded/followed precedes/follows predecessor/successor predecessors/successors
start/end starts/ends started/ended starting/ending beginning/end begin/end begins/ends began/ended
stop/start stops/starts stopped/started stopping/starting opens/closes opened/closed opening/closing
add/remove adds/removes added/removed adding/removing addition/removal create/delete creates/deletes
created/deleted creating/deleting creation/deletion enable/disable enables/disables enabled/disabled
enabling/disabling include/exclude includes/excludes included/excluded including/excluding
inclusion/exclusion allow/forbid allows/forbids allowed/forbidden allowing/forbidding accept/reject
accepts/rejects accepted/rejected accepting/rejecting encode/decode encodes/decodes encoded/decoded
encoding/decoding compress/decompress compresses/decompresses compressed/decompressed
compressing/decompressing encrypt/decrypt encrypts/decrypts encrypted/decrypted
encrypting/decrypting reads/writes reading/writing readable/writable load/save loads/saves
loaded/saved loading/saving lock/unlock locks/unlocks locked/unlocked locking/unlocking
connect/disconnect connects/disconnects connected/disconnected connecting/disconnecting send/receive
sends/receives sent/received sending/receiving sender/receiver input/output inputs/outputs
import/export imports/exports imported/exported importing/exporting install/uninstall
installs/uninstalls installed/uninstalled installing/uninstalling mutable/immutable
synchronous/asynchronous synchronously/asynchronously ascending/descending true/false valid/invalid
equal/unequal positive/negative positively/negatively public/private publicly/privately
internal/external internally/externally inner/outer inside/outside above/below forward/backward
forwards/backwards horizontal/vertical horizontally/vertically with/without always/never common/rare
commonly/rarely usually/seldom often/seldom frequently/rarely possible/impossible able/unable
known/unknown complete/incomplete direct/indirect directly/indirectly active/inactive
activate/inhibit activates/inhibits activated/inhibited activating/inhibiting activation/inhibition
upregulate/downregulate upregulates/downregulates upregulated/downregulated
upregulation/downregulation up-regulated/down-regulated up-regulation/down-regulation
promote/suppress promotes/suppresses promoted/suppressed promoting/suppressing promotion/suppression
stimulate/suppress stimulates/suppresses stimulated/suppressed stimulating/suppressing
stimulation/suppression induce/prevent induces/prevents induced/prevented inducing/preventing
induction/prevention improve/worsen improves/worsens improved/worsened improving/worsening
improvement/deterioration enhance/impair enhances/impairs enhanced/impaired enhancing/impairing
enhancement/impairment gain/lose gains/loses gained/lost gaining/losing win/lose wins/loses won/lost
winner/loser succeed/fail succeeds/fails succeeded/failed success/failure successful/unsuccessful
beneficial/harmful benefit/harm benefits/harms protective/harmful healthy/diseased benign/malignant
acute/chronic presence/absence male/female males/females man/woman men/women boy/girl boys/girls
birth/death births/deaths born/died alive/dead mother/father mothers/fathers maternal/paternal
north/south northern/southern east/west eastern/western urban/rural ancient/modern major/minor
majority/minority heavy/light heavier/lighter proximal/distal anterior/posterior sensitive/resistant
sensitivity/resistance specific/nonspecific dominant/recessive aerobic/anaerobic soluble/insoluble
likely/unlikely significant/insignificant significantly/insignificantly dependent/independent
necessary/unnecessary safe/unsafe stable/unstable
"""


def _antonyms() -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in _PAIRS.split():
        one, other = pair.split("/")
        found.setdefault(one, other)
        found.setdefault(other, one)
    return found


ANTONYMS: Final = _antonyms()
