// A group of rollouts as a tree: x = tokens, y = leaves. Columns come as arrays, one entry per segment, parents first.
const LABELS = 168, LEFT = 18, TOP = 14, HEIGHT = 520, TAU = 1e-8

function colors(t, mode) {
  const most = Math.max(TAU, ...t.advantage.map(a => Math.abs(a ?? 0)))
  const span = t.high - t.low || 1
  return i => {
    if (mode === "value") return t.value[i] === null ? null : shade((t.value[i] - t.low) / span)
    const a = t.advantage[i]
    if (a === null) return null
    if (Math.abs(a) <= TAU) return GREY
    return between(MIDDLE, a > 0 ? YES : NO, 0.35 + 0.65 * Math.abs(a) / most)
  }
}

function legend(t, mode) {
  const most = Math.max(0, ...t.advantage.map(a => Math.abs(a ?? 0)))
  const box = node("div", "legend")
  if (mode === "value") box.append(gradient([shade(0), shade(0.5), shade(1)], number(t.low), number(t.high), "mean reward below"))
  else box.append(gradient([NO, MIDDLE, YES], most ? "−" + number(most) : "0", most ? "+" + number(most) : "0", "advantage"))
  const key = (cls, text) => { const k = node("span", "key"); k.append(node("i", cls), document.createTextNode(text)); box.append(k) }
  if (t.forks) key("ring", "fork: the larger, the more entropy (nats)")
  if (t.status.some(s => s !== "live")) key("cut", "pruned or discarded")
  if (mode === "advantage" && t.advantage.some(a => a === null)) key("none", "not trained on")
  return box
}

function reach(t) {
  const kids = t.parent.map(() => [])
  t.parent.forEach((p, i) => { if (p >= 0) kids[p].push(i) })
  return kids
}

export function render({model, el}) {
  const root = node("div", "wb")
  const bar = node("div", "bar"), box = node("div", "scroll"), detail = node("div", "detail")
  box.tabIndex = 0
  box.setAttribute("role", "tree")
  box.setAttribute("aria-label", "Tree of rollouts. Up and down go from leaf to leaf, left to the parent, right to the child, Enter opens the tokens.")
  detail.setAttribute("aria-live", "polite")
  root.append(bar, box, detail)
  el.append(root)
  let t = model.tree, mode = "value", zoom = 0, wide = 1, chosen = -1, kids = [], parts = [], ends = []

  const rowHeight = () => {
    const fit = HEIGHT / Math.max(t.leaves, 1)
    if (zoom === "fit") return Math.min(fit, 28)
    return Math.min(Math.max(fit, 13), 28) * Math.pow(1.35, zoom)
  }
  const set = (change) => { change(); draw() }
  const open = (i) => { if (i >= 0 && t.opens[i]) model.send_msg({open: t.opens[i]}) }

  function tools() {
    bar.replaceChildren()
    const names = [["value", "value", "colour by the mean reward of the leaves below"], ["advantage", "advantage", "colour by the sign and size of the advantage"]]
    bar.append(switches("colour", names, mode, m => set(() => { mode = m })), legend(t, mode))
    const sizes = node("span", "tools")
    sizes.append(
      button("−", "lower rows", () => set(() => { zoom = (zoom === "fit" ? 0 : zoom) - 1 })),
      button("fit", "the whole tree in one view", () => set(() => { zoom = zoom === "fit" ? 0 : "fit"; wide = 1 })),
      button("+", "higher rows", () => set(() => { zoom = (zoom === "fit" ? 0 : zoom) + 1 })),
      button(`${wide}× wide`, "stretch the token axis", () => set(() => { wide = wide >= 8 ? 1 : 2 * wide })))
    bar.append(sizes)
  }

  function axis(svg, X) {
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000]
    const every = steps.find(s => X(s) - X(0) >= 56) || 50000
    const g = mark("g", {class: "axis"}, svg)
    for (let v = 0; v <= t.tokens; v += every) {
      mark("line", {x1: X(v), x2: X(v), y1: 18, y2: 23}, g)
      mark("text", {x: v ? X(v) : 4, y: 13, "text-anchor": v ? "middle" : "start"}, g, v ? count(v) : "0 tokens")
    }
    mark("line", {x1: X(0), x2: X(t.tokens), y1: 23, y2: 23}, g)
  }

  function draw() {
    const keep = [box.scrollTop, box.scrollLeft]
    tools()
    box.replaceChildren()
    parts = []
    if (!t.parent.length) { box.append(node("div", "empty", model.empty)); detail.replaceChildren(); return }
    kids = reach(t)
    const row = rowHeight(), labelled = row >= 11.5
    const inner = Math.max(280, (box.clientWidth || 800) - 14), right = labelled ? (inner < 520 ? 84 : LABELS) : 16
    const plot = Math.max(120, inner - LEFT - right) * wide, width = LEFT + plot + right
    const height = TOP * 2 + row * Math.max(t.leaves - 1, 0) + 8
    const X = v => LEFT + plot * v / Math.max(t.tokens, 1), Y = v => TOP + 4 + row * v
    const top = mark("svg", {class: "top", width, height: 26}, box)
    axis(top, X)
    const svg = mark("svg", {width, height, class: "trunk"}, box)
    const defs = mark("defs", {}, svg)
    const hatch = mark("pattern", {id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"}, defs)
    mark("rect", {width: 6, height: 6, class: "hatchground"}, hatch)
    mark("line", {x1: 0, y1: 0, x2: 0, y2: 6, class: "hatchline"}, hatch)
    const paint = colors(t, mode)
    const joins = mark("g", {class: "joins"}, svg), bars = mark("g", {}, svg), rings = mark("g", {}, svg), words = mark("g", {class: "words"}, svg)
    const least = Math.min(...t.parent.map((p, i) => t.n[i] && t.kind[i] !== "prompt" ? X(t.n[i]) - X(0) : 1e9))
    const gap = Math.max(3, Math.min(16, 0.4 * least)), thin = Math.max(1.5, Math.min(0.5 * row, 11))
    const most = Math.max(0.1, ...t.entropy.map(e => e ?? 0))
    ends = t.parent.map((_, i) => i).filter(i => !kids[i].length).sort((a, b) => t.y[a] - t.y[b])
    t.parent.forEach((p, i) => {
      const cut = t.status[i] !== "live", color = paint(i)
      const x0 = X(t.start[i]), x1 = X(t.start[i] + (t.kind[i] === "prompt" ? 0 : t.n[i])), y = Y(t.y[i])
      const g = mark("g", {class: "segment" + (cut ? " cut" : "")}, bars)
      const thick = Math.min(thin + (t.forks ? 1.6 * Math.log2(t.through[i]) : 0), 18, Math.max(row * 0.9, 2))
      if (p >= 0) {
        const py = Y(t.y[p]), lit = mark("path", {d: `M${x0},${py}C${x0 + gap},${py} ${x0},${y} ${x0 + gap},${y}`, class: "join" + (cut ? " cut" : "")}, joins)
        lit.setAttribute("stroke-width", Math.max(1, Math.min(1 + Math.log2(t.through[i]), 4)))
        const from = x0 + (kids[p].length > 1 || t.y[p] !== t.y[i] ? gap : 0), w = Math.max(x1 - from - 0.5, t.n[i] ? 2 : 0)
        const shape = {x: from, y: y - thick / 2, width: w, height: thick, rx: Math.min(3, thick / 2), class: "bar " + t.kind[i]}
        const r = mark("rect", shape, g)
        if (cut) r.setAttribute("fill", "url(#hatch)")
        else if (color) r.setAttribute("fill", color)
        else r.classList.add("none")
        mark("rect", {x: x0, y: y - Math.max(row / 2, 4), width: Math.max(x1 - x0, 6), height: Math.max(row, 8), class: "target"}, g)
        parts[i] = [g, lit]
        g.addEventListener("mouseenter", () => look(i, false))
        g.addEventListener("mouseleave", () => look(chosen, false))
        g.addEventListener("click", () => { look(i, true); open(i) })
      } else {
        mark("circle", {cx: x0 - 8, cy: y, r: 5, class: "root"}, g)
        parts[i] = [g]
        g.addEventListener("mouseenter", () => look(i, false))
        for (const c of kids[i]) mark("line", {x1: x0 - 3, x2: x0, y1: y, y2: y, class: "join"}, joins)
      }
      if (kids[i].length > 1 && t.kind[i] !== "prompt") {
        const e = kids[i].map(c => t.entropy[c]).find(v => v !== null)
        const r = e === undefined ? 3 : 2.5 + Math.min(row / 2, 7) * e / most
        mark("circle", {cx: x1, cy: y, r, class: "fork"}, rings)
        if (e !== undefined && row >= 20 && t.forks <= 24) mark("text", {x: x1, y: y - r - 4, "text-anchor": "middle", class: "nats"}, words, number(e))
      }
      if (!kids[i].length && labelled && p >= 0) label(words, i, x1 + 7, y, cut, right < LABELS)
    })
    box.scrollTop = keep[0]
    box.scrollLeft = keep[1]
    look(chosen, false)
  }

  function label(words, i, x, y, cut, short) {
    const text = mark("text", {x, y: y + 4}, words)
    if (cut) { mark("tspan", {class: "why"}, text, "✂ " + fitted(t.reason[i] || t.status[i], short ? 9 : 26)); return }
    const right = t.correct[i]
    mark("tspan", {fill: right === 1 ? YES : right === 0 ? NO : GREY, "font-weight": 700}, text, right === 1 ? "✓ " : right === 0 ? "✗ " : "– ")
    mark("tspan", {}, text, t.value[i] === null ? "no reward" : number(t.value[i]))
    if (!short) mark("tspan", {class: "soft"}, text, t.advantage[i] === null ? ` · ${t.fate[i].split(" · ")[0]}` : ` · adv. ${signed(t.advantage[i])}`)
  }

  const fitted = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text

  function look(i, hold) {
    if (hold) chosen = i
    root.querySelectorAll(".lit").forEach(n => n.classList.remove("lit"))
    root.querySelectorAll(".chosen").forEach(n => n.classList.remove("chosen"))
    if (parts[chosen]) parts[chosen][0].classList.add("chosen")
    for (let k = i; k >= 0; k = t.parent[k]) for (const n of parts[k] || []) n.classList.add("lit")
    describe(i)
  }

  function describe(i) {
    detail.replaceChildren()
    if (i < 0) { detail.append(node("small", "", "Hover a segment to read it; click it for its tokens. Arrow keys go from leaf to leaf, Enter opens.")); return }
    const facts = []
    if (t.kind[i] === "prompt") facts.push("the prompt, from which all rollouts start", `${t.leaves} ends`)
    else {
      const first = t.start[i] + 1, last = t.start[i] + t.n[i]
      facts.push(t.kind[i] === "model" ? "" : t.kind[i], t.n[i] ? `tokens ${count(first)} to ${count(last)}` : "no tokens of its own")
      facts.push(t.through[i] > 1 ? `shared by ${t.through[i]} rollouts` : "one rollout")
    }
    facts.push(t.value[i] === null ? "no reward" : `${t.through[i] > 1 ? "mean reward" : "reward"} ${number(t.value[i], 3)}`)
    if (t.advantage[i] !== null) facts.push(`advantage ${signed(t.advantage[i], 3)}`)
    if (t.entropy[i] !== null) facts.push(`entropy at its first token ${number(t.entropy[i])} nats${t.choice[i] && t.choice[i] !== "sampled" ? `, ${t.choice[i]}` : ""}`)
    if (t.status[i] !== "live") facts.push(`${t.status[i]}: ${t.reason[i] || "no reason recorded"}`)
    else if (t.fate[i]) facts.push(t.fate[i])
    if (t.through[i] > 1 && t.training[i]) facts.push(t.training[i])
    detail.append(node("small", "", facts.filter(Boolean).join(" · ")))
    const text = node("pre", "", t.kind[i] === "prompt" ? t.prompt : t.text[i] || (t.n[i] ? "(its tokens were not kept)" : ""))
    text.dir = "auto"
    detail.append(text)
    if (t.tests[i]) detail.append(node("small", "tests", t.tests[i]))
    if (t.more[i]) detail.append(node("small", "", "cut here; click for all of it"))
  }

  box.addEventListener("keydown", (e) => {
    if (!ends.length) return
    const leaf = () => ends.indexOf(chosen)
    let next = -1
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      const by = e.key === "ArrowDown" ? 1 : -1
      const near = leaf() >= 0 ? leaf() + by : ends.findIndex(k => chosen < 0 || t.y[k] >= t.y[chosen])
      next = ends[Math.min(Math.max(near, 0), ends.length - 1)]
    } else if (e.key === "ArrowLeft" && chosen >= 0) next = t.parent[chosen]
    else if (e.key === "ArrowRight") next = chosen < 0 ? 0 : kids[chosen][0] ?? -1
    else if (e.key === "Home") next = ends[0]
    else if (e.key === "End") next = ends[ends.length - 1]
    else if (e.key === "Enter") open(chosen)
    else if (e.key === "n" || e.key === "p") model.send_msg({group: e.key === "n" ? 1 : -1})
    else if (e.key === "v") set(() => { mode = "value" })
    else if (e.key === "a") set(() => { mode = "advantage" })
    else if (e.key === "+" || e.key === "=") set(() => { zoom = (zoom === "fit" ? 0 : zoom) + 1 })
    else if (e.key === "-") set(() => { zoom = (zoom === "fit" ? 0 : zoom) - 1 })
    else return
    e.preventDefault()
    if (next >= 0) {
      look(next, true)
      const at = parts[next][0].getBoundingClientRect(), frame = box.getBoundingClientRect()
      if (at.top < frame.top + 30 || at.bottom > frame.bottom - 12) box.scrollTop += at.top - frame.top - frame.height / 2
    }
  })

  const show = (next) => {
    const same = next.id === t.id
    t = next
    const at = t.opens.findIndex((o, i) => t.rollout[i] && t.rollout[i] === t.chosen)
    if (!same) { zoom = 0; wide = 1; chosen = -1; box.scrollTop = 0 }
    if (at >= 0) chosen = at
    draw()
  }
  model.on("tree", () => show(model.tree))
  model.on("msg:custom", (m) => { if (m.tree) show(m.tree) })
  let seen = 0
  new ResizeObserver(() => { if (Math.abs(box.clientWidth - seen) > 4) { seen = box.clientWidth; draw() } }).observe(box)
  show(t)
}
