"""Pages of training jobs: those of the fleet, one with its states over time, and the holds of a home with their release."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.runs.run_folders import RUNS, job_folders_of_home
from headrace.screens.timeline_drawing import timeline_svg
from headrace.views import holds, jobs
from headrace.web.pages.runs import address_of_hold, address_of_run
from headrace.web.rendering import address_part
from headrace.web.site import Posted, Site, checked_part, picture, readable
from trainer.job.launch.fleet_store import StoredJob
from trainer.scheduling.fleet import ENDED
from transforms.errors import HeadraceError, InputError, NotFound

#: The newest states and commits that a page shows.
_MOST_SPANS, _MOST_COMMITS = 50, 20


class JobPages:
    """Pages of the jobs of the home's fleet, and of holds."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/jobs", self.jobs),
            Route("/jobs/{number}", self.job),
            Route("/jobs/{number}/states.svg", self.states),
            Route("/holds", self.holds),
            Route("/holds/{place}/{name}", self.hold),
            self._site.form("/holds/{place}/{name}/release", self.release),
        ]

    def jobs(self, request: Request) -> Response:
        """The jobs of the fleet."""
        found = jobs.listed(self._fleet)
        held = holds.held_of_home(self._site.folder, self._site.holds.find).holds
        return self._site.page(request, "jobs.html", found, held=len(held), is_live=any(one.job.state not in ENDED for one in found.jobs))  # fmt: skip

    def job(self, request: Request) -> Response:
        """One job: its states, its speed, and the end of its output."""
        stored = self._stored(request)
        problems: list[HeadraceError] = []
        found = jobs.screen_of(self._fleet, stored, self._site.config.find_job_place)
        place = self._site.config.find_job_place(stored)
        folder = place.folder
        return self._site.page(
            request,
            "job.html",
            found,
            number=stored.job.number,
            hold=None if folder is None else next(iter(holds.held([folder], are_named=False).holds), None),
            hold_address=address_of_hold(folder) if folder in job_folders_of_home(self._site.folder) else "",
            timeline=None if folder is None else readable(lambda: jobs.timeline(folder), None, problems),
            most_spans=_MOST_SPANS,
            speeds=readable(lambda: jobs.speeds(place.run_dir, _MOST_COMMITS), (), problems) if place.run_dir else (),
            tail=readable(lambda: jobs.log_tail(found.log), None, problems),
            run_address=self._run_address(place.run_dir),
            run_part=address_part(Path(place.run_dir).name),
            problems=problems,
            is_live=stored.job.state not in ENDED,
        )

    def states(self, request: Request) -> Response:
        """The states of a job over time, as a picture of its page."""
        folder = self._site.config.find_job_place(self._stored(request)).folder
        found = None if folder is None else jobs.timeline(folder)
        if found is None:
            raise NotFound("a job must have a log to draw its states", where="job", value=request.path_params["number"],
                           next_step="a job with --hosts has one once it was started")  # fmt: skip
        return picture(timeline_svg(found.spans))

    def holds(self, request: Request) -> Response:
        """The jobs of the home that are held, also those that no fleet has started."""
        found = holds.held_of_home(self._site.folder, self._site.holds.find)
        return self._site.page(request, "holds.html", found, address_of=lambda one: address_of_hold(Path(one.run)))

    def hold(self, request: Request) -> Response:
        """The evidence of one hold, and the form that releases it."""
        folder = self._job_folder(request)
        found = holds.held([folder], are_named=True)
        run = address_of_run(folder.name) if folder.parent.name == RUNS else ""
        return self._site.page(request, "hold.html", found, name=folder.name, address=address_of_hold(folder), run_address=run)  # fmt: skip

    def release(self, form: Posted) -> str:
        """Release a hold that a page has shown."""
        folder = self._job_folder(form.request)
        if not form["corrected"]:
            raise InputError("the cause must be corrected before its hold is released", where=str(folder), value="not confirmed",
                             next_step="look at the hold again, correct its cause, and check the box")  # fmt: skip
        holds.released(folder, run=str(folder), seen=form["hold"])
        return address_of_hold(folder)

    @property
    def _fleet(self) -> Path:
        return (self._site.folder / jobs.FLEET).absolute()

    def _stored(self, request: Request) -> StoredJob:
        found = {str(one.job.number): one for one in jobs.listed(self._fleet).jobs}
        return found[checked_part(request, "number", found, "a job of the fleet")]

    def _job_folder(self, request: Request) -> Path:
        """The folder of the home that an address names: that of a run, or of the job of a run in a bucket."""
        known = job_folders_of_home(self._site.folder)
        place = checked_part(request, "place", {path.parent.name for path in known}, "a folder of jobs")
        name = checked_part(request, "name", [path.name for path in known if path.parent.name == place], "a job of the home")  # fmt: skip
        return self._site.folder / place / name

    def _run_address(self, run_dir: str) -> str:
        """The page of a run; empty for one that is not in the home."""
        folder = Path(run_dir)
        is_of_home = bool(run_dir) and folder.absolute().parent == (self._site.folder / RUNS).absolute() and folder.is_dir()  # fmt: skip
        return address_of_run(folder.name) if is_of_home else ""
