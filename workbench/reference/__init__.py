"""The reference as static HTML, made from the tree: `workbench docs -o FOLDER`. No network, no template language."""
