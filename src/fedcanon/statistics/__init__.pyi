# What fedcanon.statistics offers, by where it lives.
from .findings import Findings as Findings
from .findings import investigate as investigate
from .report import write_coefficients as write_coefficients
from .report import write_report as write_report
from .settings import StudySettings as StudySettings
from .site import StudySite as StudySite
from .study import Question as Question
from .study import Study as Study
from .study import begin_study as begin_study
