"use strict";
// Tables sort by the column whose head is pressed, and show the rows that have all words asked for.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const rows = Array.from(body.rows);
  const words = new Intl.Collator("en", { numeric: true });

  heads.forEach((head, column) => {
    const numbers = head.hasAttribute("data-numbers");
    const text = (row) => row.cells[column].textContent;
    const value = (row) => (numbers ? Number.parseFloat(text(row)) : text(row));
    const lacks = (found) => (numbers ? Number.isNaN(found) : found === "\u2013");
    const compare = numbers ? (a, b) => a - b : words.compare;
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const found = rows.map((row) => [value(row), row]);
      // What is missing comes last in both directions; equal rows keep the order they had.
      found.sort(([a], [b]) => {
        if (lacks(a) || lacks(b)) return lacks(a) - lacks(b);
        return down ? compare(b, a) : compare(a, b);
      });
      rows.splice(0, rows.length, ...found.map(([, row]) => row));
      body.append(...rows);
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });

  const filter = document.querySelector(`[data-filters="${table.id}"]`);
  const count = document.querySelector(`[data-counts="${table.id}"]`);
  let texts = null;
  filter.closest(".filter").hidden = false;
  filter.addEventListener("input", () => {
    texts ??= new Map(
      rows.map((row) => [row, Array.from(row.cells, (cell) => cell.textContent).join(" ").toLowerCase()]),
    );
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of texts) {
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = wanted.length ? `${shown} of ${rows.length} rows` : "";
  });
}
