"""Lets Hydra find our config groups in the apps that use this package, and in no others."""

import sys

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class SglangHydraSearchPath(SearchPathPlugin):
    """Appends conf/ after the app's own folders, only if the app has imported sglang_hydra.

    Hydra runs every search-path plugin of an environment in every Hydra app. An app that does not use this package must
    not find a second ``model`` group."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if "sglang_hydra" not in sys.modules:
            return
        from sglang_hydra.compose.schema import register
        from sglang_hydra.text.locations import conf_dir

        register()
        if "sglang_hydra.compose.hydra_jobs" in sys.modules:
            from sglang_hydra.compose.hydra_jobs import FOLDERS, add_folders

            add_folders(search_path, FOLDERS.get())
        path = f"file://{conf_dir()}"
        if all(element.path not in (path, str(conf_dir())) for element in search_path.get_path()):
            search_path.append("sglang_hydra", path)
        if "sglang_hydra.run.hydra_app" in sys.modules:
            from sglang_hydra.run.before_hydra import check_app

            check_app(search_path)
