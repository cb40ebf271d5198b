"""The Kedro pipelines, one folder a stage."""
