"""Starts the browser in which pages are opened."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; tests that need it skip where there is none."""
    selenium = pytest.importorskip("selenium", reason="selenium, which drives the browser, is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, driver_ = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver_):
        pytest.skip("there is no chromium with its chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1400,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=Service(driver_))
    except selenium.common.exceptions.WebDriverException as error:  # one that is there and cannot start
        pytest.skip(f"chromium does not start here: {str(error).splitlines()[0]}")
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def screenshot(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the browser shows when a test is over, for people to look at, in the folder of GLENSIDE_SCREENSHOTS."""
    yield
    folder = os.environ.get("GLENSIDE_SCREENSHOTS")
    if folder and "browser" in request.fixturenames:
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "-", request.node.name)
        request.getfixturevalue("browser").save_screenshot(str(Path(folder) / f"{name}.png"))
