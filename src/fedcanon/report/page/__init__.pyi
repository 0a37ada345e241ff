# What fedcanon.report.page offers, by where it lives.
from .html import check_target as check_target
from .html import write_report as write_report
from .live import serving as serving
