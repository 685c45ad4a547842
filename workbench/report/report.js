// Reading, zoom and legends of the figures. Numbers come from data-panels; every text goes through textContent.
"use strict"
const NS = "http://www.w3.org/2000/svg"
const el = (tag, cls, text) => {
  const n = document.createElement(tag)
  if (cls) n.className = cls
  if (text !== undefined) n.textContent = text
  return n
}
function round(v) {
  if (v === null || v === undefined) return "–"
  const a = Math.abs(v)
  return (a >= 1000 ? v.toLocaleString("en-US", {maximumFractionDigits: 0}) : Number(v.toPrecision(4)).toString()).replace("-", "−")
}
const percent = v => v === null ? "–" : (100 * v).toFixed(1).replace("-", "−") + " %"
function ticks(low, high, n) {
  const rough = (high - low) / n, power = Math.pow(10, Math.floor(Math.log10(rough)))
  const size = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough * 0.999), out = []
  for (let v = Math.ceil(low / size - 1e-9) * size; v <= high + size * 1e-9; v += size) out.push(Number(v.toPrecision(12)))
  return out
}
function nearest(xs, x) {
  let low = 0, high = xs.length - 1
  if (high < 0) return -1
  while (high - low > 1) { const m = (low + high) >> 1; if (xs[m] < x) low = m; else high = m }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high
}
function interactive(svg) {
  const panels = JSON.parse(svg.dataset.panels), figure = svg.closest("figure"), off = new Set()
  const reading = el("div", "reading"), line = document.createElementNS(NS, "path"), band = document.createElementNS(NS, "rect")
  reading.hidden = true
  figure.append(reading, el("div", "hint", "drag to zoom, double click to see all"))
  line.setAttribute("stroke", "currentColor"); line.setAttribute("opacity", "0.45"); line.style.pointerEvents = "none"
  band.setAttribute("fill", "#2f81d6"); band.setAttribute("opacity", "0.15"); band.style.pointerEvents = "none"
  svg.append(line, band)
  const seen = panels.map(p => [...p.x])
  const grids = panels.map(p => p.heat ? Uint8Array.from(atob(p.heat.grid), c => c.charCodeAt(0)) : null)
  let from = null
  const point = event => {
    const r = svg.getBoundingClientRect(), v = svg.viewBox.baseVal
    return [(event.clientX - r.left) * v.width / r.width, (event.clientY - r.top) * v.height / r.height]
  }
  const under = (x, y) => panels.findIndex(p => x >= p.box[0] - 4 && x <= p.box[1] + 4 && y >= p.box[2] - 4 && y <= p.box[3] + 4)
  const value = (i, x) => seen[i][0] + (x - panels[i].box[0]) / (panels[i].box[1] - panels[i].box[0]) * (seen[i][1] - seen[i][0])
  function show(i) {
    const p = panels[i], [a, b] = seen[i], [left, right] = p.box
    const scale = (p.x[1] - p.x[0]) / (b - a)
    const shift = left - scale * (left + (a - p.x[0]) / (p.x[1] - p.x[0]) * (right - left))
    for (const g of svg.querySelectorAll(`.zoom[data-panel="${i}"]`)) g.setAttribute("transform", `matrix(${scale} 0 0 1 ${shift} 0)`)
    const axis = svg.querySelector(`.x-ticks[data-panel="${i}"]`), model = axis && axis.querySelector("text")
    if (!model) return
    const y = model.getAttribute("y"), color = model.getAttribute("fill")
    axis.replaceChildren(...ticks(a, b, right - left > 400 ? 8 : 3).map(v => {
      const t = document.createElementNS(NS, "text")
      for (const [k, w] of [["x", left + (v - a) / (b - a) * (right - left)], ["y", y], ["fill", color], ["text-anchor", "middle"]]) t.setAttribute(k, w)
      t.textContent = round(v)
      return t
    }))
  }
  function read(i, event, x, y) {
    const p = panels[i], at = value(i, x)
    reading.replaceChildren()
    if (p.heat) {
      const h = p.heat, column = Math.min(h.columns - 1, Math.max(0, Math.floor((at - p.x[0]) / (p.x[1] - p.x[0]) * h.columns)))
      const row = Math.min(h.rows - 1, Math.max(0, Math.floor((y - p.box[2]) / (p.box[3] - p.box[2]) * h.rows)))
      const v = grids[i][row * h.columns + column]
      reading.append(el("div", "", `step ${round(Math.round(at))}: ${h.value} ${v === 255 ? "not known" : percent(v / 254)}`))
      line.setAttribute("d", "")
    } else {
      let best = null
      for (const s of p.series) {
        const k = nearest(s.x, at + p.bar / 2)
        if (k >= 0 && s.y[k] !== null && (best === null || Math.abs(s.x[k] - at) < Math.abs(best - at))) best = s.x[k]
      }
      if (best === null) { reading.hidden = true; return }
      reading.append(el("div", "", `${p.label || "x"} ${round(best)}`))
      for (const s of p.series) {
        const k = s.x.indexOf(best)
        if (k < 0 || off.has(s.name) || s.y[k] === null || (p.bar && !s.y[k])) continue
        const r = el("div"), c = el("i")
        c.style.background = s.color
        r.append(c, document.createTextNode(`${s.name}: ${p.percent ? percent(s.y[k]) : round(s.y[k])}`))
        reading.append(r)
      }
      const px = p.box[0] + (best - p.bar / 2 - seen[i][0]) / (seen[i][1] - seen[i][0]) * (p.box[1] - p.box[0])
      line.setAttribute("d", px >= p.box[0] && px <= p.box[1] ? `M${px} ${p.box[2]}V${p.box[3]}` : "")
    }
    reading.hidden = false
    const f = figure.getBoundingClientRect(), w = reading.offsetWidth
    const px = event.clientX - f.left
    reading.style.left = `${px + 16 + w > f.width ? Math.max(4, px - w - 14) : px + 14}px`
    reading.style.top = `${event.clientY - f.top + 12}px`
  }
  svg.addEventListener("pointermove", event => {
    const [x, y] = point(event)
    if (from) {
      const p = panels[from.panel], a = Math.max(p.box[0], Math.min(from.x, x)), b = Math.min(p.box[1], Math.max(from.x, x))
      for (const [k, v] of [["x", a], ["y", p.box[2]], ["width", Math.max(0, b - a)], ["height", p.box[3] - p.box[2]]]) band.setAttribute(k, v)
      return
    }
    const i = under(x, y)
    if (i < 0) { reading.hidden = true; line.setAttribute("d", ""); return }
    read(i, event, x, y)
  })
  svg.addEventListener("pointerleave", () => { reading.hidden = true; line.setAttribute("d", "") })
  svg.addEventListener("pointerdown", event => {
    const [x, y] = point(event), i = under(x, y)
    if (i < 0 || event.button) return
    from = {panel: i, x}
    event.preventDefault()
  })
  addEventListener("pointerup", event => {
    if (!from) return
    const {panel, x} = from, p = panels[panel], end = Math.max(p.box[0], Math.min(p.box[1], point(event)[0]))
    from = null
    band.setAttribute("width", 0)
    if (Math.abs(end - x) < 6) return
    const a = value(panel, Math.max(p.box[0], Math.min(x, end))), b = value(panel, Math.max(x, end))
    if (b - a > 1e-9) { seen[panel] = [a, b]; show(panel); reading.hidden = true; line.setAttribute("d", "") }
  })
  svg.addEventListener("dblclick", event => {
    const i = under(...point(event))
    if (i >= 0) { seen[i] = [...panels[i].x]; show(i) }
  })
  for (const key of svg.querySelectorAll(".key")) {
    const toggle = () => {
      const name = key.querySelector("text").textContent, n = key.dataset.series
      const hide = !off.has(name)
      if (hide) off.add(name); else off.delete(name)
      key.classList.toggle("off", hide)
      for (const g of svg.querySelectorAll(`[data-key="${n}"]`)) g.classList.toggle("off-series", hide)
    }
    key.setAttribute("tabindex", "0")
    key.setAttribute("role", "button")
    key.addEventListener("click", toggle)
    key.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { toggle(); event.preventDefault() } })
  }
}
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0]
  heads.forEach((th, i) => th.addEventListener("click", () => {
    const down = th.dataset.order !== "down"
    heads.forEach(h => delete h.dataset.order)
    th.dataset.order = down ? "down" : "up"
    const read = row => row.cells[i].textContent.replace(/,/g, "").replace("−", "-")
    const key = row => { const n = parseFloat(row.cells[i].dataset.v ?? read(row)); return th.classList.contains("n") ? (isNaN(n) ? -Infinity : n) : read(row) }
    const rows = [...body.rows].sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1) })
    body.append(...rows)
  }))
}
document.querySelectorAll("svg.chart[data-panels]").forEach(interactive)
document.querySelectorAll("figure.table table").forEach(sortable)
const links = new Map([...document.querySelectorAll("nav a")].map(a => [a.getAttribute("href").slice(1), a]))
const watch = new IntersectionObserver(entries => {
  for (const e of entries) if (e.isIntersecting) {
    links.forEach(a => a.classList.remove("here"))
    const a = links.get(e.target.id)
    if (a) a.classList.add("here")
  }
}, {rootMargin: "0px 0px -75% 0px"})
document.querySelectorAll("section[id]").forEach(s => watch.observe(s))
document.documentElement.dataset.ready = "yes"
