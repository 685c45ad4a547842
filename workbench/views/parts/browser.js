const KEY = "workbench-name"
export function render({model, view}) {
  const went = () => {
    const address = view.model.document.roots().find(m => m.type.endsWith("Location"))
    if (!address) return
    history.pushState = () => {}  // what the model hears would become an entry of its own
    try { address.search = location.search } finally { delete history.pushState }
  }
  window.addEventListener("popstate", went)
  model.on("remove", () => window.removeEventListener("popstate", went))
  try {
    const kept = localStorage.getItem(KEY)
    if (kept && !model.who) model.who = kept
  } catch {}  // a browser that keeps nothing
  model.on("who", () => { try { localStorage.setItem(KEY, model.who) } catch {} })
  if (new URLSearchParams(location.search).has("theme")) return
  const system = window.matchMedia("(prefers-color-scheme: dark)")
  const follow = () => { model.dark = system.matches }
  follow()
  system.addEventListener("change", follow)
  model.on("remove", () => system.removeEventListener("change", follow))
}
