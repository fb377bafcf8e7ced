"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // A link into a closed part opens it, and one into a part that the filter hides ends the filter.
  const box = document.getElementById("filter");
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target.closest("[hidden]")) {
      box.value = "";
      filter([]);
    }
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) reveal();
  });

  // Paper has no clicks.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
  });

  // Sorting: numbers by the value behind them, and fields without one last in either direction.
  const number = /^(-?[\d.,]*\d(?:e[-+]?\d+)?) ?(ns|us|ms|%|[kMGTP](?=[A-Z]))?/;
  const units = { ns: 1e-9, us: 1e-6, ms: 1e-3, "%": 0.01, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  const read = (text) => {
    const found = number.exec(text.trim());
    return found && Number(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1);
  };
  const sort = (header) => {
    const table = header.closest("table");
    const column = header.cellIndex;
    const falling = header.getAttribute("aria-sort") === "ascending";
    const numeric = header.matches(".number, .numbers th:not(.left, .prose)");
    const key = (row) => {
      const field = row.cells[column];
      if (!numeric) return field.textContent.trim();
      return field.dataset.value === undefined ? read(field.textContent) : Number(field.dataset.value);
    };
    const compare = (a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      const order = numeric ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true });
      return falling ? -order : order;
    };
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: key(row) }));
    body.append(...rows.sort(compare).map(({ row }) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", falling ? "descending" : "ascending");
  };
  for (const header of all("thead th")) {
    if (header.matches(".graphic") || header.closest("table").tBodies[0].rows.length < 2) continue;
    const button = document.createElement("button");
    button.type = "button";
    header.dataset.title = header.textContent; // for paper, where a head that is repeated shows no buttons
    button.append(...header.childNodes);
    header.append(button);
  }
  addEventListener("click", (event) => {
    const button = event.target.closest("thead th > button");
    if (button) sort(button.parentElement);
  });

  // The filter: a part of a case stays whole where its title matches, and else keeps the rows that do.
  const matches = (text, words) => words.every((word) => text.includes(word));
  const filter = (words) => {
    for (const part of all("details.section")) {
      if (!part.querySelector("tbody")) continue;
      const own = all("tbody tr", part).filter((row) => row.closest("details") === part);
      for (const row of own) row.hidden = !matches(row.textContent.toLowerCase(), words);
      for (const inner of all("details.inner", part)) {
        const whole = matches(inner.querySelector("summary").textContent.toLowerCase(), words);
        let left = whole;
        for (const row of all("tbody tr", inner)) {
          row.hidden = !whole && !matches(row.textContent.toLowerCase(), words);
          left ||= !row.hidden;
        }
        inner.hidden = !left;
      }
    }
  };
  box.addEventListener("input", () => filter(box.value.toLowerCase().split(/\s+/).filter(Boolean)));
  const setAll = (open) => all("details").forEach((part) => (part.open = open));
  document.getElementById("open-all").addEventListener("click", () => setAll(true));
  document.getElementById("close-all").addEventListener("click", () => setAll(false));
  document.getElementById("tools").hidden = false;
  reveal();
})();
