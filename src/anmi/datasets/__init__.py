"""Datasets: versioned, written aside and renamed, free of pickle; plain files are those of kedro-datasets."""

from anmi.datasets.artifact import ArtifactDataset
from anmi.datasets.candidates import CandidateShardsDataset, ColumnsDataset
from anmi.datasets.files import FigureDataset, JsonDataset, NumpyDataset, TableDataset, TextDataset, TrainingRowsDataset
from anmi.datasets.folders import FolderDataset, StoreDataset
from anmi.datasets.model_registry import ModelRegistryDataset

__all__ = [
    "ArtifactDataset",
    "CandidateShardsDataset",
    "ColumnsDataset",
    "FigureDataset",
    "FolderDataset",
    "JsonDataset",
    "ModelRegistryDataset",
    "NumpyDataset",
    "StoreDataset",
    "TableDataset",
    "TextDataset",
    "TrainingRowsDataset",
]
