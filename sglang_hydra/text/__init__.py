"""What every package uses: findings, errors, styled lines, YAML and JSON text, whole files. Nothing of SGLang."""
