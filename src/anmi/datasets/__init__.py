"""Datasets: versioned, written aside and renamed, free of pickle."""

from anmi.datasets.artifact import ArtifactDataset
from anmi.datasets.files import (
    CandidateShardsDataset,
    ColumnsDataset,
    FigureDataset,
    FolderDataset,
    JsonDataset,
    NumpyDataset,
    StoreDataset,
    TableColumns,
    TableDataset,
    TextDataset,
    TrainingRowsDataset,
)

__all__ = [
    "ArtifactDataset",
    "CandidateShardsDataset",
    "ColumnsDataset",
    "FigureDataset",
    "FolderDataset",
    "JsonDataset",
    "NumpyDataset",
    "StoreDataset",
    "TableColumns",
    "TableDataset",
    "TextDataset",
    "TrainingRowsDataset",
]
