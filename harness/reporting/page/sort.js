"use strict";
// A click on a header orders its table: numbers by size before words by letters, what is empty last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      for (const each of headers) each.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.order;
      const rows = [...body.rows].sort((one, other) => compare(key(one), key(other), up));
      body.append(...rows);
    });
  });
}

function compare(one, other, up) {
  if (one === "" || other === "") return (one === "") - (other === "");
  const numbers = [Number(one), Number(other)];
  const words = numbers.map(Number.isNaN);
  if (words[0] !== words[1]) return words[0] - words[1];
  const order = words[0] ? one.localeCompare(other) : numbers[0] - numbers[1];
  return up ? order : -order;
}

// What is folded would be missing on paper.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
