// Adds a box that filters the rows of all tables by benchmark name. Without scripts, every row is shown.
(() => {
  const tables = document.querySelectorAll("table[data-filter]");
  const nav = document.querySelector("header nav");
  if (!tables.length || !nav) return;
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "filter benchmarks";
  box.setAttribute("aria-label", "filter benchmarks by name");
  nav.after(box);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) {
        const name = row.cells[0].textContent.toLowerCase();
        row.hidden = !words.every((word) => name.includes(word));
      }
    }
  });
})();
