"""Sessions in JupyterLab, in a real browser."""

from playwright.sync_api import Page, expect


def test_jupyterlab_offers_our_kernel(page: Page, lab) -> None:
    """K-28: the launcher shows the kernel that the installation brings."""
    page.goto(lab.url())
    expect(page.locator(".jp-LauncherCard[data-category='Notebook']").get_by_text("rlm")).to_be_visible()
