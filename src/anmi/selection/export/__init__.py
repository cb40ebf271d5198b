"""Training rows in the formats that other trainers read."""

from anmi.selection.export.flat import Collection, ExportOptions
from anmi.selection.export.formats import FORMATS, Format, find_format, make_export
from anmi.selection.export.writing import Exported, export_collection, may_replace

__all__ = [
    "FORMATS",
    "Collection",
    "ExportOptions",
    "Exported",
    "Format",
    "export_collection",
    "find_format",
    "make_export",
    "may_replace",
]
