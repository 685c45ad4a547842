export function render({model, el}) {
  const busy = "input, textarea, select, [contenteditable], [role=slider], [role=tab], [role=listbox], [role=radiogroup]"
  const pressed = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || !model.names.includes(e.key)) return
    if (!el.isConnected) { window.removeEventListener("keydown", pressed); return }
    if (e.composedPath().some(n => n.matches && n.matches(busy))) return
    e.preventDefault()
    model.send_msg({key: e.key})
  }
  window.addEventListener("keydown", pressed)
  model.on("remove", () => window.removeEventListener("keydown", pressed))
}
