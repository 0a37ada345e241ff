"use strict";
// Draws the charts of a page from its numbers, in the colours of its style sheet.

const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const AXES = {
  rounds: { title: "round", unit: "" },
  seconds: { title: "seconds of training", unit: " s" },
  bytes: { title: "bytes sent, both ways", unit: "B", tickformat: "~s" },
};
const DASHES = { solid: "solid", dash: "dashed", dot: "dotted" }; // Plotly's names and CSS's
const MOST_BARS = 60; // beyond it bars are too thin, and dots are drawn
const TOUCH = matchMedia("(pointer: coarse)").matches;

const chosen = { against: "rounds", hidden: new Set(), partition: 0 };
let charts = JSON.parse(byId("numbers").textContent);

// ---- what all charts share

const colourOf = (group) => css(`--curve-${group % Number(document.body.dataset.colours)}`);
const dashOf = (group) => {
  const names = Object.keys(DASHES);
  return names[Math.floor(group / Number(document.body.dataset.colours)) % names.length];
};
const isShown = (group) => !chosen.hidden.has(group);
// Plotly takes labels for HTML, and %{…} in them for variables.
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%", "&#37;");

function axis(options) {
  const line = css("--line");
  const title = { text: options.title, standoff: 8 };
  return { gridcolor: line, linecolor: line, zeroline: false, ticks: "", automargin: true, ...options, title };
}

function draw(element, traces, { height, xaxis, yaxis, ...others }) {
  const family = getComputedStyle(document.body).fontFamily;
  const layout = {
    width: element.clientWidth,
    height,
    margin: { l: 46, r: 22, t: 10, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family, size: 12, color: css("--dim") },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { family, color: css("--text") } },
    hovermode: "closest",
    dragmode: TOUCH ? false : "zoom", // a finger scrolls the page
    showlegend: false,
    xaxis: axis(xaxis),
    yaxis: axis(yaxis),
    ...others,
  };
  Plotly.react(element, traces, layout, { displayModeBar: false });
}

// ---- curves

function curveTraces(panel) {
  const { title, unit, tickformat = "" } = AXES[chosen.against];
  const y = panel.share ? ".2%" : ".4g";
  const traces = panel.curves.flatMap((curve, group) => {
    if (!curve.mean) return [];
    const x = curve[chosen.against];
    const shared = { type: "scatter", name: plain(charts.groups[group]), visible: isShown(group), meta: group };
    const range = curve.low ? `<br>%{customdata[0]:${y}} to %{customdata[1]:${y}}` : "";
    const line = {
      ...shared,
      x,
      y: curve.mean,
      customdata: curve.low?.map((low, k) => [low, curve.high[k]]),
      mode: x.length > 1 ? "lines" : "markers",
      connectgaps: true,
      line: { color: colourOf(group), width: 2, dash: dashOf(group) },
      marker: { color: colourOf(group) },
      hovertemplate: `<b>${shared.name}</b><br>${title} %{x${tickformat && `:${tickformat}`}}${unit}<br>%{y:${y}}${range}<extra></extra>`,
    };
    if (!curve.low) return [line];
    const known = x.map((_, k) => k).filter((k) => curve.low[k] !== null && curve.high[k] !== null);
    const back = known.toReversed();
    const band = {
      ...shared,
      x: [...known, ...back].map((k) => x[k]),
      y: [...known.map((k) => curve.high[k]), ...back.map((k) => curve.low[k])],
      mode: "none",
      fill: "toself",
      fillcolor: colourOf(group),
      opacity: Math.min(0.17, 0.8 / charts.groups.length),
      hoverinfo: "skip",
    };
    return [band, line];
  });
  return traces.sort((a, b) => (b.mode === "none") - (a.mode === "none")); // bands below lines
}

function drawCurves() {
  const home = byId("panels");
  const names = charts.panels.map((panel) => panel.name);
  if (names.join() !== [...home.children].map((card) => card.dataset.name).join()) {
    home.replaceChildren(...charts.panels.map(card));
  }
  charts.panels.forEach((panel, k) => {
    const { title, unit, tickformat } = AXES[chosen.against];
    home.children[k].querySelector("figcaption").textContent = panel.title + (panel.log ? " (log scale)" : "");
    draw(home.children[k].querySelector(".chart"), curveTraces(panel), {
      height: 250,
      xaxis: { title, tickformat, ticksuffix: tickformat && unit, rangemode: "tozero" },
      yaxis: {
        type: panel.log ? "log" : "linear",
        tickformat: panel.share ? ".0%" : undefined,
        nticks: panel.log ? 3 : 6, // a few more come with 2 and 5 between the powers of ten
        minorloglabels: "complete",
      },
      uirevision: chosen.against, // a zoom outlasts updates, but not another axis
    });
  });
  byId("band").hidden = !charts.panels.some((panel) => panel.curves.some((curve) => curve.low));
}

function card(panel) {
  const figure = document.createElement("figure");
  figure.className = "card";
  figure.dataset.name = panel.name;
  const caption = document.createElement("figcaption");
  const chart = document.createElement("div");
  chart.className = "chart";
  figure.append(caption, chart);
  return figure;
}

function drawLegend() {
  const several = charts.groups.length > 1 ? charts.groups : [];
  byId("legend").replaceChildren(
    ...several.map((label, group) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", isShown(group));
      const sample = document.createElement("i");
      sample.style.borderTopColor = `var(--curve-${group % Number(document.body.dataset.colours)})`;
      sample.style.borderTopStyle = DASHES[dashOf(group)];
      button.append(sample, label);
      button.addEventListener("click", () => {
        if (!chosen.hidden.delete(group)) chosen.hidden.add(group);
        button.setAttribute("aria-pressed", isShown(group));
        drawCharts();
      });
      return button;
    }),
  );
}

// ---- clients

const eachOf = (count) => (count <= 12 ? 1 : undefined); // more ticks are left to Plotly
const labelsOf = (partition) => (partition.counts ?? partition.shares)[0].length;
const named = (names) => (names.length && names.length <= 40
  ? { tickvals: names.map((_, k) => k), ticktext: names.map(plain) } : {});
const heightOf = (partition) => Math.min(Math.max(labelsOf(partition) * 24, 180), 420) + 60;

function drawPartition(partition) {
  const chart = byId("partition-chart");
  const labels = labelsOf(partition);
  const height = heightOf(partition);
  const yaxis = { title: "label", range: [-0.7, labels - 0.3], dtick: eachOf(labels), ...named(partition.labels) };
  byId("partition-title").textContent = `samples of each label: ${partition.title}`;
  if (partition.shares) {
    const z = partition.shares[0].map((_, label) => partition.shares.map((column) => column[label]));
    const trace = {
      type: "heatmap",
      z,
      text: z.map(() => partition.columns),
      hovertemplate: "%{text}, label %{y}: %{z:.1%}<extra></extra>",
      colorscale: [[0, css("--card")], [1, css("--accent")]],
      zmin: 0,
      colorbar: { thickness: 10, tickformat: ".0%", outlinewidth: 0 },
    };
    const xaxis = { title: "clients, by their commonest label", showticklabels: false };
    draw(chart, [trace], { height, xaxis, yaxis });
    return;
  }
  const cells = partition.counts.flatMap((row, x) => row.map((count, y) => ({ x, y, count })));
  const filled = cells.filter((cell) => cell.count > 0);
  const clients = partition.counts.length;
  const most = Math.max(...filled.map((cell) => cell.count));
  const widest = 0.95 * Math.min((chart.clientWidth - 70) / (clients + 0.4), (height - 60) / (labels + 0.4));
  const trace = {
    type: "scatter",
    mode: "markers",
    x: filled.map((cell) => cell.x),
    y: filled.map((cell) => cell.y),
    customdata: filled.map((cell) => cell.count),
    marker: {
      size: filled.map((cell) => cell.count),
      sizemode: "area",
      sizeref: (2 * most) / widest ** 2,
      sizemin: 1,
      color: css("--accent"),
      opacity: 0.85,
      line: { width: 0 },
    },
    text: filled.map((cell) => `client ${plain(partition.clients[cell.x])}, label ${plain(partition.labels[cell.y] ?? String(cell.y))}`),
    hovertemplate: "%{text}: %{customdata:,} samples<extra></extra>",
  };
  const xaxis = { title: "client", range: [-0.7, clients - 0.3], dtick: eachOf(clients), ...named(partition.clients) };
  draw(chart, [trace], { height, xaxis, yaxis });
}

function drawLosses(partition) {
  byId("losses").hidden = !partition.losses.length;
  if (!partition.losses.length) return;
  const clients = partition.sizes.length;
  const bars = clients * partition.losses.length <= MOST_BARS;
  const traces = partition.losses.map(({ group, round, values }) => ({
    type: bars ? "bar" : "scatter",
    mode: "markers",
    name: plain(charts.groups[group]),
    visible: isShown(group),
    x: values.map((_, client) => client),
    y: values,
    customdata: partition.sizes,
    text: partition.clients.map((name) => `client ${plain(name)}`),
    textposition: "none",
    marker: { color: colourOf(group), ...(bars ? {} : { size: 6 }) },
    hovertemplate: `<b>${plain(charts.groups[group])}</b>, round ${round}<br>%{text} (%{customdata:,} samples): %{y:.4g}<extra></extra>`,
  }));
  draw(byId("losses-chart"), traces, {
    height: heightOf(partition),
    xaxis: { title: "client", dtick: eachOf(clients), range: [-0.7, clients - 0.3], ...named(partition.clients) },
    yaxis: { rangemode: "tozero", nticks: 6 },
    bargap: 0.3,
  });
}

function drawClients() {
  byId("clients").hidden = !charts.partitions.length;
  if (!charts.partitions.length) return;
  const choice = byId("partition");
  choice.hidden = charts.partitions.length < 2;
  choice.replaceChildren(...charts.partitions.map(({ title }, k) => new Option(title, k, k === 0, k === chosen.partition)));
  const partition = charts.partitions[chosen.partition];
  drawPartition(partition);
  drawLosses(partition);
}

// ---- the final model

function drawLayers() {
  const { names, sizes, shares } = charts.layers;
  const missing = charts.without_model;
  byId("without-model").textContent = missing.length ? `A model is written at the end of a run; not yet by ${missing.join(", ")}.` : "";
  byId("layers").hidden = !names.length;
  if (!names.length) return;
  const groups = shares.filter((own) => own.some((share) => share !== null)).length;
  const bars = names.length * groups <= MOST_BARS;
  const traces = shares.map((own, group) => ({
    type: bars ? "bar" : "scatter",
    orientation: "h",
    mode: "markers",
    name: plain(charts.groups[group]),
    visible: isShown(group),
    x: own,
    y: names.map(plain),
    customdata: sizes,
    marker: { color: colourOf(group), ...(bars ? {} : { size: 8 }) },
    hovertemplate: `<b>${plain(charts.groups[group])}</b><br>%{y}: %{x:.1%} of %{customdata:,}<extra></extra>`,
  }));
  draw(byId("layers-chart"), traces, {
    height: names.length * (bars ? Math.max(30, 13 * groups + 10) : 18) + 40,
    margin: { l: 46, r: 22, t: 10, b: 24 },
    xaxis: { range: [0, 1], tickformat: ".0%" },
    yaxis: { autorange: "reversed", type: "category" },
    bargap: 0.3,
  });
}

// ---- the page

function drawCharts() {
  byId("charts").hidden = false;
  byId("curves").hidden = !charts.panels.length;
  drawCurves();
  drawClients();
  drawLayers();
}

function start() {
  drawLegend();
  drawCharts();
}

byId("against").addEventListener("change", (event) => {
  chosen.against = event.target.value;
  drawCharts();
});
byId("partition").addEventListener("change", (event) => {
  chosen.partition = Number(event.target.value);
  drawClients();
});
const redraw = () => charts && requestAnimationFrame(drawCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);

// ---- a page without numbers follows a run

const LEAST_WAIT = 1000;
let known = "";

function show(text) {
  if (text === known) return;
  known = text;
  const news = JSON.parse(text);
  tell(news.problem ?? "");
  if (news.problem) return;
  document.title = news.title;
  byId("top").innerHTML = news.top;
  byId("bottom").innerHTML = news.bottom;
  charts = news.charts;
  start();
}

function tell(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
}

async function follow() {
  const asked = performance.now();
  let text = "";
  try {
    text = await (await fetch("data.json")).text();
  } catch {
    known = "";
    tell("This page is not updated any more: the command that served it has ended.");
  }
  // Answers come from the process that trains: they may take a twentieth of its time.
  const wait = Math.max(LEAST_WAIT, 20 * (performance.now() - asked));
  if (text) show(text);
  setTimeout(follow, wait);
}

if (charts) start();
else follow();
