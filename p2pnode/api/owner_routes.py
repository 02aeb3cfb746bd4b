"""Routes about the owner's hours and pauses."""

from typing import Protocol

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery, JSONBody

from p2pnode.api.owner_documents import (
    AskChange,
    AskSetDocument,
    AskShowDocument,
    AskSimulateDocument,
    PauseDocument,
    PauseOrder,
    UseOrder,
    WindowAddDocument,
    WindowExportDocument,
    WindowListDocument,
    WindowName,
    WindowOrder,
    WindowRemoveDocument,
    WindowTestDocument,
    WindowTestOrder,
)


class OwnerServices(Protocol):
    """What the node can tell and do about its owner's decisions. All raise LocalFault."""

    def windows(self) -> WindowListDocument: ...
    async def add_window(self, order: WindowOrder) -> WindowAddDocument: ...
    def remove_window(self, name: str) -> WindowRemoveDocument: ...
    async def test_windows(self, order: WindowTestOrder) -> WindowTestDocument: ...
    async def export_windows(self) -> WindowExportDocument: ...
    def ask(self) -> AskShowDocument: ...
    def set_ask(self, change: AskChange) -> AskSetDocument: ...
    def reset_ask(self) -> AskSetDocument: ...
    def pause(self, order: PauseOrder) -> PauseDocument: ...
    def simulate(self, floors: list[int], since_ms: int) -> AskSimulateDocument: ...
    def set_use(self, order: UseOrder) -> AskSetDocument: ...
    def resume(self) -> PauseDocument: ...


def owner_routes(services: OwnerServices) -> list[HTTPRouteHandler]:
    """The handlers, over these services."""

    @get("/v1/windows")
    async def windows() -> WindowListDocument:
        return services.windows()

    @post("/v1/windows", status_code=200)
    async def add_window(data: JSONBody[WindowOrder]) -> WindowAddDocument:
        return await services.add_window(data)

    @post("/v1/windows/remove", status_code=200)
    async def remove_window(data: JSONBody[WindowName]) -> WindowRemoveDocument:
        return services.remove_window(data.name)

    @post("/v1/windows/test", status_code=200)
    async def test_windows(data: JSONBody[WindowTestOrder]) -> WindowTestDocument:
        return await services.test_windows(data)

    @get("/v1/windows/export")
    async def export_windows() -> WindowExportDocument:
        return await services.export_windows()

    @get("/v1/ask")
    async def ask() -> AskShowDocument:
        return services.ask()

    @post("/v1/ask", status_code=200)
    async def set_ask(data: JSONBody[AskChange]) -> AskSetDocument:
        return services.set_ask(data)

    @get("/v1/ask/simulate")
    async def simulate(
        since_ms: FromQuery[int], floor_micro: FromQuery[list[int] | None] = None
    ) -> AskSimulateDocument:
        return services.simulate(floor_micro or [], since_ms)

    @post("/v1/ask/reset", status_code=200)
    async def reset_ask() -> AskSetDocument:
        return services.reset_ask()

    @post("/v1/pause", status_code=200)
    async def pause(data: JSONBody[PauseOrder]) -> PauseDocument:
        return services.pause(data)

    @post("/v1/use", status_code=200)
    async def set_use(data: JSONBody[UseOrder]) -> AskSetDocument:
        return services.set_use(data)

    @post("/v1/resume", status_code=200)
    async def resume() -> PauseDocument:
        return services.resume()

    return [
        *(windows, add_window, remove_window, test_windows, export_windows),
        *(ask, set_ask, reset_ask, simulate, set_use, pause, resume),
    ]
