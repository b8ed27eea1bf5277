"""Pages of models."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.views import models
from headrace.web.site import Site


class ModelPages:
    """Pages of models."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/models", self.models),
            Route("/models/{name}", self.model),
        ]

    def models(self, request: Request) -> Response:
        """The live models."""
        return self._site.page(request, "models.html", models.listed(self._warehouse))

    def model(self, request: Request) -> Response:
        """One model and its inputs."""
        return self._site.page(request, "model.html", models.shown(self._warehouse, request.path_params["name"], 0))
