"use strict";
(() => {
  const watched = Number(document.body.dataset.watched || 0);
  if (watched) {
    const box = document.getElementById("watch");
    setInterval(() => { if (box.checked) location.reload(); }, watched * 1000);
  }
  const table = document.getElementById("cells");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const filter = document.getElementById("filter");
  const count = document.getElementById("count");
  const texts = rows.map((row) => row.textContent.toLowerCase());

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, k) => {
      row.hidden = !words.every((word) => texts[k].includes(word));
      if (!row.hidden) shown += 1;
    });
    count.textContent = `${shown} of ${rows.length} rows`;
  };

  const sort = (heading) => {
    const column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const number = heading.classList.contains("number");
    const keys = new Map(rows.map((row) => [row, row.cells[column].dataset.sort]));
    const ordered = rows.slice().sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (x === y) return 0;
      if (x === "") return 1; // what was not measured comes last, whatever the order
      if (y === "") return -1;
      const order = number ? Number(x) - Number(y) : x.localeCompare(y);
      return down ? -order : order;
    });
    body.append(...ordered);
  };

  filter.addEventListener("input", show);
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sort(heading));
  }
})();
