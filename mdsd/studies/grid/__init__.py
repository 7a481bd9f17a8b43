"""Studies of a grid: cells, their numbers at every position, rows, and the folder of it all."""

from mdsd.studies.grid.folder import Study, read_study
from mdsd.studies.grid.runs import study
from mdsd.studies.study_rows import StudyRow

__all__ = ["Study", "StudyRow", "read_study", "study"]
