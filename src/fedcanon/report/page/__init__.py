"""Interactive pages about runs: a file that needs no network, or a page that follows a run."""

from fedcanon.report.page.html import check_target, write_report
from fedcanon.report.page.live import serving

__all__ = ["check_target", "serving", "write_report"]
