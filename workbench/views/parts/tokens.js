// One rollout as coloured tokens beside the rollouts of its group. Text reaches the page through textContent alone.
const HUES = {logp: "#d98200", entropy: FORK}
const NAMES = {logp: "logprob", entropy: "entropy", ratio: "ratio", advantage: "advantage", clipped: "clipped"}
const MOST_NATS = {logp: 5, entropy: 3}, WIDEST = 2

// How strongly a value colours a token, from 0 to 1, and with what.
function tint(track, v, largest) {
  if (v === null || v === undefined) return null
  if (track === "logp") return [HUES.logp, Math.pow(Math.min(1, Math.max(0, -v / MOST_NATS.logp)), 0.7)]
  if (track === "entropy") return [HUES.entropy, Math.pow(Math.min(1, Math.max(0, v / MOST_NATS.entropy)), 0.7)]
  if (track === "ratio") return [v >= 1 ? YES : NO, Math.min(1, Math.abs(Math.log(Math.max(v, 1e-9))) / Math.log(WIDEST))]
  if (track === "advantage") return [v >= 0 ? YES : NO, Math.min(1, Math.abs(v) / Math.max(largest, 1e-9))]
  return [CHOSEN, v ? 1 : 0]
}
function legend(track, r) {
  const weak = c => `color-mix(in srgb, ${c} 6%, transparent)`, full = c => `color-mix(in srgb, ${c} 62%, transparent)`
  if (track === "logp") return gradient([weak(HUES.logp), full(HUES.logp)], "0", "−5 or less", "nats: the stronger, the less expected the token was")
  if (track === "entropy") return gradient([weak(HUES.entropy), full(HUES.entropy)], "0", "3 or more", "nats: the stronger, the more open the choice was")
  if (track === "ratio") return gradient([full(NO), weak(GREY), full(YES)], "½", "2", `${r.policy} / behaviour policy, 1 = unmoved; nats apart on a log scale`)
  if (track === "advantage") return gradient([full(NO), weak(GREY), full(YES)], "−" + number(r.largest), "+" + number(r.largest), r.own ? "advantage of each token" : "advantage of the rollout, the same for all its tokens")
  return gradient([weak(CHOSEN), full(CHOSEN)], "acts", "clipped", `no gradient: ratio outside ${number(r.low)} to ${number(r.high)} on the side the advantage pushes to (${r.said})`)
}
function spell(parent, word, special) {
  if (special) { parent.append(node("span", "special", word)); return }
  if (!word) { parent.append(node("span", "ws", "◌")); return }
  for (const part of word.split(/(\n|\t)/)) {
    if (part === "\n") { parent.append(node("span", "ws", "↵"), document.createTextNode("\n")) }
    else if (part === "\t") { parent.append(node("span", "ws", "⇥"), document.createTextNode("\t")) }
    else if (part) parent.append(document.createTextNode(part))
  }
}

export function render({model, el}) {
  const root = node("div", "wb"), main = node("div", "main"), side = node("div", "side")
  const bar = node("div", "bar"), strip = node("div", "strip"), body = node("div", "body"), foot = node("div", "foot"), detail = node("div", "detail")
  body.tabIndex = 0
  body.setAttribute("aria-label", "Tokens of the rollout. Left and right go from token to token.")
  side.tabIndex = 0
  side.setAttribute("role", "listbox")
  side.setAttribute("aria-label", "Rollouts of the group. Up and down choose one.")
  detail.setAttribute("aria-live", "polite")
  main.append(bar, strip, detail, body, foot)
  root.append(main, side)
  el.append(root)
  let r = model.rollout, rows = model.rows, track = "logp", at = -1, spans = []

  function tools() {
    bar.replaceChildren()
    const names = Object.keys(NAMES).map(k => [k, NAMES[k], r.missing[k] ? "not recorded: " + r.missing[k] : `colour by ${NAMES[k]}`, !r.missing[k]])
    if (!names.some(n => n[3])) return  // only the text is on record; the line under it says why
    bar.append(switches("colour tokens by", names, r.tracks[track] ? track : "", k => { track = k; draw() }))
    if (r.words && r.words.length && r.tracks[track]) bar.append(legend(track, r))
  }

  function draw() {
    if (r.words.length && !r.tracks[track]) track = Object.keys(NAMES).find(k => r.tracks[k]) || track
    tools()
    body.replaceChildren()
    foot.replaceChildren()
    spans = []
    at = -1
    if (!r.id) { body.append(node("div", "empty", model.empty)); detail.replaceChildren(); strip.replaceChildren(); return }
    const special = new Set(r.special), values = r.tracks[track]
    const all = document.createDocumentFragment()
    r.words.forEach((word, i) => {
      const span = node("span", "t")
      spell(span, word, special.has(i))
      const paint = values ? tint(track, values[i], r.largest) : null
      if (paint && paint[1] > 0.004) span.style.backgroundColor = `color-mix(in srgb, ${paint[0]} ${(4 + 58 * paint[1]).toFixed(1)}%, transparent)`
      if (r.tracks.clipped && r.tracks.clipped[i]) span.classList.add("clipped")
      spans.push(span)
      all.append(span)
    })
    if (!r.words.length) { const text = node("span", "plain", r.text || "(empty)"); text.dir = "auto"; all.append(text) }
    body.append(all)
    if (r.more) {
      const b = button(r.more, "the rest of this rollout", () => { b.disabled = true; b.textContent = "loading…"; model.send_msg({all: r.id}) })
      foot.append(b)
    }
    if (r.rest) foot.append(node("small", "", r.rest))
    if (!r.words.length && r.why) foot.append(node("small", "", r.why))
    curve(values)
    describe(-1)
  }

  // The track over the whole of what is shown, in at most 240 columns; a click goes there.
  function curve(values) {
    strip.replaceChildren()
    if (!values || values.length < 8) return
    const n = values.length, columns = Math.min(240, n), w = 100 / columns
    const svg = mark("svg", {viewBox: "0 0 100 26", preserveAspectRatio: "none", role: "img", "aria-label": `${NAMES[track]} along the rollout`}, strip)
    const middle = track === "ratio" || track === "advantage"
    if (middle) mark("line", {x1: 0, x2: 100, y1: 13, y2: 13, class: "zero"}, svg)
    for (let c = 0; c < columns; c++) {
      let strong = null
      for (let i = Math.floor(c * n / columns); i < Math.max(Math.floor((c + 1) * n / columns), Math.floor(c * n / columns) + 1); i++) {
        const paint = tint(track, values[i], r.largest)
        if (paint && (!strong || paint[1] > strong[1])) strong = paint
      }
      if (!strong || strong[1] < 0.01) continue
      const h = (middle ? 13 : 26) * strong[1], up = strong[0] !== NO
      mark("rect", {x: c * w, width: Math.max(w * 0.86, 0.15), y: middle ? (up ? 13 - h : 13) : 26 - h, height: h, fill: strong[0]}, svg)
    }
    svg.addEventListener("click", (e) => {
      const i = Math.min(n - 1, Math.floor(n * e.offsetX / Math.max(svg.clientWidth, 1)))
      look(i)
      body.scrollTop += spans[i].getBoundingClientRect().top - body.getBoundingClientRect().top - body.clientHeight / 2
    })
  }

  function look(i) {
    if (spans[at]) spans[at].classList.remove("on")
    at = i
    if (spans[at]) spans[at].classList.add("on")
    describe(at)
  }

  function describe(i) {
    detail.replaceChildren()
    detail.hidden = !r.words.length
    if (i < 0 || !r.words.length) {
      detail.append(node("small", "", r.words.length ? `${count(r.n)} tokens. Hover one for its numbers${strip.childNodes.length ? "; the strip shows the strongest along the rollout, click it to go there" : ""}.` : ""))
      return
    }
    const facts = [`token ${count(i + 1)} of ${count(r.n)}`, `id ${r.ids[i]}`]
    const t = r.tracks
    if (t.logp && t.logp[i] !== null) facts.push(`logprob ${number(t.logp[i], 3)} nats (${(100 * Math.exp(t.logp[i])).toPrecision(3)} %)`)
    if (t.entropy && t.entropy[i] !== null) facts.push(`entropy ${number(t.entropy[i], 3)} nats`)
    if (t.ratio && t.ratio[i] !== null) facts.push(`ratio ${number(t.ratio[i], 3)}`)
    if (t.advantage && t.advantage[i] !== null) facts.push(`advantage ${signed(t.advantage[i], 3)}`)
    if (t.clipped && t.clipped[i] !== null) facts.push(t.clipped[i] ? "clipped" : "acts")
    if (!r.words[i]) facts.push("part of a character that a later token ends")
    const code = node("code", "", JSON.stringify(r.words[i]))
    detail.append(code, node("small", "", facts.join(" · ")))
  }

  function list() {
    const focus = side.contains(document.activeElement) || side.getRootNode().activeElement === side
    side.replaceChildren(node("small", "title", rows.length ? `${rows.length} rollouts of this group: reward, advantage, length` : ""))
    const largest = Math.max(1e-9, ...rows.map(s => Math.abs(s.advantage ?? 0))), longest = Math.max(1, ...rows.map(s => s.length))
    for (const s of rows) {
      const line = node("div", "row" + (s.id === r.id ? " on" : ""))
      line.setAttribute("role", "option")
      line.setAttribute("aria-selected", s.id === r.id)
      line.title = s.id
      const right = node("b", s.correct === 1 ? "yes" : s.correct === 0 ? "no" : "none", s.correct === 1 ? "✓" : s.correct === 0 ? "✗" : "–")
      const reward = node("span", "num", number(s.reward))
      const track = node("span", "track"), length = node("span", "length")
      if (s.advantage) {
        const i = node("i", s.advantage > 0 ? "pos" : "neg"), w = 50 * Math.abs(s.advantage) / largest
        i.style.width = w + "%"
        i.style.left = (s.advantage > 0 ? 50 : 50 - w) + "%"
        track.append(i)
      }
      const i = node("i")
      i.style.width = 100 * s.length / longest + "%"
      length.append(i)
      line.append(right, reward, track, node("span", "num", signed(s.advantage)), length, node("small", "", s.note))
      line.addEventListener("click", () => choose(s.id))
      side.append(line)
      if (s.id === r.id && focus) line.scrollIntoView({block: "nearest"})
    }
  }
  function choose(id) { if (id !== r.id) model.send_msg({rollout: id}) }

  side.addEventListener("keydown", (e) => {
    const i = rows.findIndex(s => s.id === r.id)
    const to = {ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: rows.length - 1}[e.key]
    if (to === undefined || !rows.length) return
    e.preventDefault()
    choose(rows[Math.min(Math.max(to, 0), rows.length - 1)].id)
  })
  body.addEventListener("keydown", (e) => {
    if (e.key === "n" || e.key === "p") { model.send_msg({group: e.key === "n" ? 1 : -1}); return }
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1}[e.key]
    if (to === undefined || !spans.length) return
    e.preventDefault()
    look(Math.min(Math.max(to, 0), spans.length - 1))
    spans[at].scrollIntoView({block: "nearest"})
  })
  body.addEventListener("mouseover", (e) => {
    const span = e.target.closest(".t")
    if (span) look(spans.indexOf(span))
  })

  const show = (next, beside) => {
    if (beside) rows = beside
    if (next) { if (next.id !== r.id) body.scrollTop = 0; r = next }
    list()
    if (next) draw()
  }
  model.on("rollout", () => show(model.rollout, null))
  model.on("rows", () => show(null, model.rows))
  model.on("msg:custom", (m) => { if (m.rollout) show(m.rollout, m.rows) })
  show(r, rows)
}
