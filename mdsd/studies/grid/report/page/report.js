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

  // What is too wide for the window loses the columns that say nothing, or is shown row by row.
  const box = table.closest(".scroll");
  const sheet = document.head.appendChild(document.createElement("style"));
  const note = document.querySelector(`[data-same="${table.id}"]`);
  const cells = (column) => `#${table.id} tr > :nth-child(${column + 1})`;
  const screen = (rules) => `@media screen { ${rules.join(" ")} }`;
  const labels = heads.map(
    (head, column) =>
      `${cells(column).replace(" tr", ".cards tbody tr")}::before { content: ${JSON.stringify(head.textContent.trim())}; }`,
  );
  const same = [];
  heads.forEach((head, column) => {
    const first = rows.length > 1 ? rows[0].cells[column].textContent : null;
    if (rows.every((row) => row.cells[column].textContent === first)) same.push([column, head.textContent.trim(), first.trim()]);
  });
  const fit = (wide) => {
    table.classList.remove("cards");
    sheet.textContent = "";
    note.hidden = true;
    if (wide || table.offsetWidth <= box.clientWidth) return;
    const hidden = same.map(([column]) => `${cells(column)} { display: none; }`);
    sheet.textContent = screen([...labels, ...hidden]);
    note.textContent = `The same in all rows: ${same.map(([, head, value]) => `${head} ${value}`).join(", ")}.`;
    note.hidden = same.length === 0;
    if (table.offsetWidth > box.clientWidth) table.classList.add("cards");
  };
  fit(false);
  addEventListener("resize", () => fit(false));
  addEventListener("beforeprint", () => fit(true));
  addEventListener("afterprint", () => fit(false));

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

// Pictures fit the window; a click shows in full size what had to be made smaller for that.
for (const image of document.images) {
  const smaller = () => image.classList.toggle("smaller", image.clientWidth < image.getAttribute("width"));
  const turn = () => {
    if (image.classList.contains("smaller") || image.classList.contains("full")) image.classList.toggle("full");
  };
  smaller();
  image.tabIndex = 0;
  addEventListener("resize", smaller);
  image.addEventListener("click", turn);
  image.addEventListener("keydown", (event) => event.key === "Enter" && turn());
}
