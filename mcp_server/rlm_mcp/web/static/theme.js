// Runs before the page is painted, so that the colours do not flash.
(() => {
  const root = document.documentElement;
  const known = ["light", "dark"];
  const chosen = localStorage.getItem("rlm-theme");
  if (known.includes(chosen)) root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    for (const input of document.querySelectorAll("input[name=theme]")) {
      input.checked = input.value === (root.dataset.theme ?? "auto");
      input.addEventListener("change", () => {
        if (known.includes(input.value)) root.dataset.theme = input.value;
        else delete root.dataset.theme;
        localStorage.setItem("rlm-theme", input.value);
      });
    }
  });
})();
