"""Training rows in the formats that other trainers read."""

from anmi.selection.export.formats import FORMATS, Collection, ExportOptions, find_format
from anmi.selection.export.writing import Exported, export_collection, make_export, may_replace

__all__ = [
    "FORMATS",
    "Collection",
    "ExportOptions",
    "Exported",
    "export_collection",
    "find_format",
    "make_export",
    "may_replace",
]
