"use strict";
// This script lets a reader sort and filter the tables. Without it, the page shows all rows.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  let rows = [...body.rows];
  const text = new Map(
    rows.map((row) => [
      row,
      [...row.cells]
        .filter((cell) => !cell.classList.contains("chart"))
        .map((cell) => cell.textContent)
        .join(" ")
        .replace(/\s+/g, " ")
        .toLowerCase(),
    ]),
  );
  const bar = document.getElementById(table.id + "-bar");
  const filter = bar.querySelector(".filter");
  const input = filter.querySelector("input");
  const count = filter.querySelector("output");
  const more = document.getElementById(table.id + "-more");
  const limit = Number(table.dataset.limit);
  let unfolded = rows.length <= limit;

  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => text.get(row).includes(word));
      row.classList.toggle("folded", !unfolded && !words.length && shown >= limit);
      shown += row.hidden ? 0 : 1;
    }
    filter.classList.toggle("active", words.length > 0);
    count.value = words.length ? `${shown} of ${rows.length}` : "";
    more.hidden = unfolded || words.length > 0;
  };

  const key = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent.trim();
    const value = cell.dataset.value;
    return value === "" ? null : value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value);
  };

  const compare = (a, b) =>
    typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a < b ? -1 : a > b ? 1 : 0;

  const sort = (column) => {
    const head = heads[column];
    const first = head.classList.contains("num") ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [key(row, column), row]);
    // Values that are not known stay at the end in both orders.
    keyed.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * compare(a, b)));
    rows = keyed.map(([, row]) => row);
    for (const other of heads) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    }
    head.setAttribute("aria-sort", order);
    body.append(...rows);
    show();
  };

  heads.forEach((head, column) => {
    if (head.classList.contains("chart")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(column));
    head.append(button);
    head.setAttribute("aria-sort", "none");
  });
  input.addEventListener("input", show);
  more.addEventListener("click", () => {
    unfolded = true;
    show();
  });
  filter.hidden = rows.length < 2;
  show();
}
