"use strict";
// This script shows the setting that the sliders stand at. It looks up texts and computes no number.
{
  const by = (id) => document.getElementById("explore-" + id);
  const { settings, alphas, start, lines, stops, groups, rows, texts, lists, numbers } = JSON.parse(
    document.getElementById("explored").textContent,
  );
  const listed = (place) => lists[place].map((text) => texts[text]);
  const write = (id, text) => {
    by(id).textContent = text;
  };
  const element = (name, attributes = {}, ...inside) => {
    const found = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    found.append(...inside);
    return found;
  };
  const drawn = (name, attributes) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    return found;
  };
  const cell = (label) => element("td", { class: "num", "data-label": label });
  const labels = (table) => [...by(table).tHead.rows[0].cells].map((head) => head.textContent);

  // A table whose rows can be found by their words, and of which the first ones are shown at first.
  const foldable = (table, made, what) => {
    const limit = Number(by(table).dataset.limit);
    const input = by(table + "-filter");
    const more = by(table + "-more");
    let unfolded = made.length <= limit;
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of made) {
        const text = row.cells[0].textContent.toLowerCase() + " " + (row.dataset.words || "");
        row.hidden = !words.every((word) => text.includes(word));
        row.classList.toggle("folded", !unfolded && !words.length && shown >= limit);
        shown += row.hidden ? 0 : 1;
      }
      input.parentElement.classList.toggle("active", words.length > 0);
      input.parentElement.querySelector("output").value = words.length ? `${shown} of ${made.length}` : "";
      more.hidden = unfolded || words.length > 0;
    };
    more.textContent = `Show all ${made.length} ${what}`;
    more.addEventListener("click", () => {
      unfolded = true;
      show();
    });
    input.addEventListener("input", show);
    input.parentElement.hidden = made.length < 2;
    by(table).tBodies[0].append(...made);
    show();
    return show;
  };

  // What is promised to each group.
  const ofGroups = labels("groups");
  const groupRows = groups.map(([name, condition, records]) => {
    const head = element("th", { scope: "row" }, name);
    if (condition) head.append(element("small", { class: "mono" }, condition));
    const row = element("tr", {}, head, ...[1, 2, 3, 4].map((i) => cell(ofGroups[i])));
    row.cells[3].textContent = records;
    return row;
  });
  const findGroups = foldable("groups", groupRows, "groups");

  // The thresholds.
  const ofCells = labels("cells");
  const { low, high, left, right } = Object.fromEntries(
    Object.entries(by("cells").dataset).map(([key, value]) => [key, Number(value)]),
  );
  const place = (number) => {
    if (number === "inf") return "95%";
    if (number === "-inf") return "2%";
    const part = high > low ? Math.min(1, Math.max(0, (number - low) / (high - low))) : 0.5;
    return (left + (right - left) * part).toFixed(2) + "%";
  };
  const zero = place(Math.max(low, Math.min(high, 0)));
  const grid = [...by("cells").tHead.querySelectorAll("text")].map((tick) => tick.getAttribute("x"));
  const cellRows = rows.map(([records, members]) => {
    const names = members.length ? members.map((group) => groups[group][0]) : ["no group"];
    const chips = element("ul", { class: "chips" }, ...names.map((name) => element("li", {}, name)));
    const chart = drawn("svg", { "aria-hidden": "true" });
    for (const x of grid) chart.append(drawn("line", { class: "grid", x1: x, x2: x, y1: 0, y2: "100%" }));
    const parts = {
      stem: drawn("line", { class: "stem", x1: zero, y1: "50%", y2: "50%" }),
      began: drawn("circle", { class: "began", cy: "50%", r: 5 }),
      mark: drawn("circle", { class: "s0 mark", cy: "50%", r: 5 }),
      infinite: drawn("text", { class: "infinite", y: "50%" }),
    };
    chart.append(...Object.values(parts));
    const row = element(
      "tr",
      {},
      element("th", { scope: "row" }, chips),
      element("td", { class: "chart" }, chart),
      ...[2, 3, 4].map((i) => cell(ofCells[i])),
    );
    row.cells[4].textContent = records;
    return Object.assign(row, { parts });
  });
  const findCells = foldable("cells", cellRows, by("cells").parentElement.ariaLabel.includes(" by group") ? "groups" : "combinations");

  const toggle = (part, on) => part.setAttribute("visibility", on ? "visible" : "hidden");
  const mark = (row, number, text, first) => {
    const { stem, began, mark, infinite } = row.parts;
    const finite = typeof number === "number";
    for (const part of [stem, mark]) toggle(part, finite);
    toggle(infinite, !finite);
    toggle(began, typeof first === "number");
    infinite.setAttribute("x", place(number));
    infinite.textContent = text;
    if (finite) {
      mark.setAttribute("cx", place(number));
      stem.setAttribute("x2", place(number));
    }
    if (typeof first === "number") began.setAttribute("cx", place(first));
  };

  // The setting that the sliders stand at.
  const alpha = by("alpha");
  const line = by("line");
  const part = by("part");
  const stopsOf = () => (line ? lines[Number(line.value)].stops : [["", 0]]);
  const stopOf = () => stopsOf()[part ? Number(part.value) : 0][1];

  const show = () => {
    const stop = stopOf();
    const setting = settings[stop][Number(alpha.value)];
    const [name, goal, option] = alphas[Number(alpha.value)];
    const [mixture, shares, weights] = stops[stop];
    const [charge, correction, count, share] = listed(setting.f);

    by("alpha-text").value = name;
    alpha.setAttribute("aria-valuetext", `alpha ${name}, ${goal} to be covered`);
    if (part) {
      const way = stopsOf()[Number(part.value)][0];
      by("part-text").value = way;
      part.setAttribute("aria-valuetext", `${way}: ${mixture}`);
    }
    write("goal", goal);
    write("charge", charge);
    write("correction", correction);
    write("count", count);
    if (by("share")) write("share", share);
    write("mixture", mixture);
    write("shares", shares);
    const options = by("command").dataset.options;
    write("command", `gcfcp calibrate SUMMARY... ${option} ${weights}${options ? " " + options : ""} -o predictor.json`);
    const what = by("count").previousElementSibling.textContent;
    write("said", `Alpha ${name}, ${mixture}: ${count} ${what}.`);

    const promised = listed(setting.p);
    const missing = listed(setting.m);
    const effective = listed(setting.e);
    groupRows.forEach((row, i) => {
      row.cells[1].replaceChildren(promised[2 * i], element("small", {}, promised[2 * i + 1]));
      row.cells[2].textContent = missing[i];
      row.cells[4].textContent = effective[i];
    });

    const none = setting.r.length === 0;
    write("infinite", none ? "Nothing: every threshold is finite at this setting." : `${count} ${what}:`);
    by("reasons").replaceChildren(
      ...setting.r.map(([reason, extent]) => {
        const note = element("div", { class: "note" }, element("p", {}, element("strong", {}, texts[reason])));
        if (texts[extent]) note.append(element("p", { class: "soft" }, texts[extent]));
        return note;
      }),
    );

    const weighs = listed(setting.w);
    const first = settings[0][start];
    cellRows.forEach((row, i) => {
      const [number, shown] = numbers[setting.t[i]];
      mark(row, number, shown, numbers[first.t[i]][0]);
      row.cells[2].textContent = shown;
      row.cells[3].textContent = weighs[i];
      row.dataset.words = typeof number === "number" ? "" : "infinite " + shown;
    });
    findGroups();
    findCells();
  };

  // The stops of a line differ from those of another one: stay as far on the way as there is a stop.
  let way = 0;
  const turn = () => {
    if (!part) return;
    const ends = stopsOf();
    part.max = ends.length - 1;
    part.value = ends.filter(([text]) => parseFloat(text) <= way).length - 1;
  };
  const begin = () => {
    alpha.value = start;
    way = 0;
    turn();
    show();
  };

  alpha.max = alphas.length - 1;
  if (line) line.append(...lines.map(({ name }, i) => element("option", { value: i }, name)));
  alpha.addEventListener("input", show);
  line?.addEventListener("input", () => {
    turn();
    show();
  });
  part?.addEventListener("input", () => {
    way = parseFloat(stopsOf()[Number(part.value)][0]);
    show();
  });
  by("back").addEventListener("click", begin);
  by("back").form.addEventListener("submit", (event) => event.preventDefault());
  begin();
}
